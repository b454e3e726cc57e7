"""Embeddings and attention weights: embed, explain and their plots."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from contiformer import Classifier, Interpolator, use_kernels
from contiformer.backbones import BACKBONES, Backbone
from tests.estimators.problems import TINY, long_table


@pytest.mark.parametrize("kind", ["classifier", "regressor", "interpolator"])
def test_attention_weights_sum_to_one(request, X, kind):
    model = request.getfixturevalue(kind)
    told = model.explain(X, "attention", at=[0.0, 5.0, 20.0])
    assert len(told.weights) == len(told.query_times) == len(X)
    for n, (times, values) in enumerate(X):
        assert told.weights[n].shape == (2, 3, len(times))
        np.testing.assert_allclose(told.weights[n].sum(-1), 1, rtol=1e-5)
        np.testing.assert_array_equal(told.points[n], times)
        np.testing.assert_array_equal(told.values[n], values)
    if kind == "interpolator":
        assert told.pooling is None
    else:
        assert [one.shape for one in told.pooling] == [(4, len(times)) for times, _ in X]
        for one in told.pooling:
            np.testing.assert_allclose(one.sum(-1), 1, rtol=1e-5)


def test_explain_changes_no_prediction_and_ignores_batch_mates(X, classifier):
    before = classifier.predict_proba(X)
    whole = classifier.explain(X, "attention")
    np.testing.assert_array_equal(classifier.predict_proba(X), before)
    alone = classifier.explain(X[2:3], "attention")
    np.testing.assert_allclose(alone.weights[0], whole.weights[2], rtol=1e-4, atol=1e-6)
    assert whole.weights[2].shape == (2, len(X[2][0]), len(X[2][0]))


def test_explained_weights_are_those_of_the_forward_pass(X, interpolator):
    """A value that has no weight can be anything."""
    told = interpolator.explain(X[:1], "attention", at=[3.0])
    attention = interpolator.tasks_[0].backbone.model.layers[-1].attention
    seen = {}

    def keep(module, args, out):
        seen.update(args=args, out=out)

    hook = attention.register_forward_hook(keep)
    interpolator.embed(X[:1], at=[3.0])
    compiled = seen["out"]
    # weights come from the listing, which refines whole sequences where the kernel refines trajectories
    with use_kernels(False):
        interpolator.embed(X[:1], at=[3.0])
    hook.remove()
    with torch.no_grad():
        out, weights = attention(*seen["args"], return_weights=True)
    torch.testing.assert_close(out, seen["out"], rtol=1e-5, atol=1e-6)
    assert float((compiled - out).abs().max()) < 1e-3 * float(out.abs().max())
    np.testing.assert_allclose(weights[0, :, :, : len(X[0][0])].numpy(), told.weights[0], rtol=1e-5)


def test_embed_returns_states_at_any_time(X, classifier):
    states = classifier.embed(X)
    assert [one.shape for one in states] == [(len(times), 8) for times, _ in X]
    at = classifier.embed(X, at=[1.0, 2.0])
    assert [one.shape for one in at] == [(2, 8)] * len(X)
    np.testing.assert_allclose(classifier.embed(X[3:4], at=[2.0])[0], at[3][1:], rtol=1e-3, atol=1e-4)
    own = classifier.embed(X[:1], at=[list(X[0][0])])[0]
    np.testing.assert_allclose(own, states[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="member must be from 0 to 0, got 1"):
        classifier.embed(X, member=1)


def test_member_selects_the_member(X, y):
    model = Classifier.from_options(members=2, **TINY).fit(X, y)
    assert np.abs(model.embed(X, member=0)[0] - model.embed(X, member=1)[0]).max() > 1e-3
    assert (
        np.abs(
            model.explain(X, "attention", member=0).weights[0] - model.explain(X, "attention", member=1).weights[0]
        ).max()
        > 1e-6
    )


@pytest.mark.parametrize("dates", [False, True])
def test_plot_of_an_explanation(tmp_path, X, y, dates):
    table = pd.DataFrame(long_table(X, y))
    if dates:
        table["hour"] = pd.Timestamp("2024-03-01") + pd.to_timedelta((3600 * table["hour"]).round(), unit="s")
    model = Classifier.from_options(**TINY).fit(table, id="who", time="hour", label="kind")
    told = model.explain(table, "attention")
    path = tmp_path / "look.png"
    figure = told.plot(path, series=told.ids.index("p3"))
    assert path.read_bytes()[:4] == b"\x89PNG"
    observed, pooled, attention = figure.axes[:3]
    assert "p3" in observed.get_title(loc="left")
    assert len(observed.lines) == 2
    assert len(pooled.collections[0].get_segments()) == len(X[3][0])
    cells = attention.collections[0].get_array()
    np.testing.assert_allclose(np.asarray(cells).sum(1), 1, rtol=1e-4)
    with pytest.raises(ValueError, match="series must be from 0 to 11, got 12"):
        told.plot(series=12)


def test_plot_of_tied_observations(X, interpolator):
    told = interpolator.explain([([1.0, 1.0, 1.0], np.zeros((3, 2)))], "attention", at=[2.0])
    np.testing.assert_allclose(np.asarray(told.plot().axes[1].collections[0].get_array()), [[1.0]], rtol=1e-5)


def test_plot_without_matplotlib_says_what_to_install(X, interpolator, monkeypatch):
    told = interpolator.explain(X[:1], "attention")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'contiformer\[plot\]'"):
        told.plot()


class Plain(Backbone):
    """Knows the mean of what was observed, and no attention."""

    def __init__(self, input_size, d_model=8, **options):
        super().__init__()
        self.d_model = d_model
        self.proj = nn.Linear(input_size, d_model)

    def forward(self, batch, query_times=None):
        times = batch.times if query_times is None else query_times
        return self.proj(batch.values.mean(1, keepdim=True)).expand(-1, times.shape[1], -1)


def test_explain_is_refused_for_a_backbone_without_attention(X, monkeypatch):
    monkeypatch.setitem(BACKBONES, "plain", Plain)
    model = Interpolator.from_options(**{**TINY, "backbone": "plain", "backbone_options": None}).fit(X)
    assert model.embed(X)[0].shape == (len(X[0][0]), 8)
    with pytest.raises(ValueError, match="the backbone 'plain' has no continuous attention"):
        model.explain(X, "attention")

"""Forecasters on a regular grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from contiformer import Forecaster
from contiformer.backbones import BACKBONES
from contiformer.backbones.informer import Informer
from contiformer.backbones.regular import RegularBackbone
from contiformer.backbones.timesnet import Inception
from contiformer.data import DataError, Series, SeriesSet, collate
from contiformer.tasks.forecasting import Forecasting
from contiformer.tasks.heads import ValueHead
from contiformer.tasks.inputs import InputOptions, Inputs

REGULAR = [name for name, kind in BACKBONES.items() if issubclass(kind, RegularBackbone)]
SMALL = {"d_model": 8, "max_epochs": 1, "horizon": 4, "history": 12, "verbose": 0}
OWN = {"timesnet": {"n_kernels": 2, "periods": 2}}


def two_waves(length: int = 60) -> list[tuple[np.ndarray, np.ndarray]]:
    times = np.arange(float(length))
    return [(times, np.stack([np.sin(times / 3), np.cos(times / 4)], axis=1))]


def fit(backbone: str, X=None, **options) -> Forecaster:
    options = {**SMALL, "backbone_options": OWN.get(backbone), **options}
    return Forecaster.from_options(backbone=backbone, **options).fit(two_waves() if X is None else X)


@pytest.mark.parametrize("backbone", REGULAR)
def test_every_regular_model_is_trained_saved_and_loaded(backbone, tmp_path):
    model = fit(backbone)
    said = model.predict(two_waves())[0]
    assert said.shape == (4, 2)
    assert np.isfinite(said).all()
    model.save(tmp_path)
    loaded = Forecaster.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(two_waves())[0], said)


def model_data(pairs) -> SeriesSet:
    return SeriesSet([Series.of(*pair) for pair in pairs])


def test_calendar_phases_follow_the_rows():
    seen = []

    class Watching(nn.Module):
        d_model = 1

        def forward(self, batch, query_times):
            seen.append(batch)
            return torch.zeros(*query_times.shape, 1)

        def extra_loss(self):
            return None

    options = {"seasons": [8.0], "start": 3.0, "unit": 2.0, "calendar": True, "past": 0, "reads": "forecasts"}
    task = Forecasting(Watching(), Inputs(InputOptions(3)), reach=1.0, outputs=1, separate=False, **options)
    batch = collate([Series.of([0.5, 1.0, 1.5], [[1.0], [2.0], [4.0]]), Series.of([0.5], [[1.0]])])
    task(batch, torch.tensor([[2.0], [2.0]], dtype=torch.float64))
    turns = 2 * np.pi * (3.0 + 2.0 * np.array([0.5, 1.0, 1.5])) / 8.0
    np.testing.assert_allclose(seen[0].values[0, :, 1:], np.stack([np.sin(turns), np.cos(turns)], 1), atol=1e-6)
    assert seen[0].observed[0].all()
    assert not seen[0].observed[1, 1:].any()
    assert (seen[0].values[1, 1:] == 0).all()


def test_validation_limit_limits_the_validation_windows():
    X = model_data(two_waves(400))
    model = fit("dlinear", X, validation_limit=7)
    windows = model._cut(X)
    assert len(model._validation_form(windows)) == 7
    assert len(model.set_params(training__validation_limit=None)._validation_form(windows)) == len(windows) > 300
    with pytest.raises(ValueError, match="validation_limit must be positive or None, got 0"):
        fit("dlinear", validation_limit=0)


def test_scaling_none_leaves_the_values_unscaled():
    X = [(two_waves()[0][0], 5 + 3 * two_waves()[0][1])]
    model = fit("dlinear", X, scaling="none")
    assert model.scaling_.mean == model.scaling_.target_mean == (0.0, 0.0)
    assert model.scaling_.std == model.scaling_.target_std == (1.0, 1.0)
    windows = model._cut(model_data(X))
    said = [one.values for one in model.predict(windows, at=[one.target_times for one in windows])]
    misses = np.concatenate([(a - one.target_values).ravel() for a, one in zip(said, windows, strict=True)])
    pooled = float((misses**2).mean())
    assert model.evaluate(X)["mse"] == pytest.approx(pooled, rel=1e-5)
    with pytest.raises(ValueError, match="scaling must be one of 'standard', 'none', got 'normal scores'"):
        fit("dlinear", scaling="normal scores")


def test_series_shorter_than_a_window_is_refused():
    with pytest.raises(DataError, match="the longest series lasts 2 steps of 1, fewer than the 10 of two windows"):
        fit("dlinear", two_waves(3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reads": "forecasts", "law": "gaussian"}, "law must be 'point' where a head reads forecasts"),
        ({"reads": "states", "features": 2}, "reads must be 'hidden' where there are features"),
        ({"reads": "minds"}, "reads must be one of hidden, states, forecasts, got 'minds'"),
    ],
)
def test_contradictory_head_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        ValueHead(4, 2, **options)


def test_informer_without_its_novelties_is_a_transformer():
    """Encoder and decoder with full attention: PyTorch's, given the same weights."""
    torch.manual_seed(0)
    model = Informer(2, 8, n_heads=2, n_layers=2, dropout=0.0, history=6, horizon=3, factor=None, distil=False).eval()
    window = torch.randn(3, 6, 2)
    encoded = model.embedding(window)
    for layer in model.encoder:
        encoded = as_torch(layer, nn.TransformerEncoderLayer)(encoded)
    encoded = model.encoder_norm(encoded)
    x = model.decoder_embedding(torch.cat([window[:, -3:], torch.zeros(3, 3, 2)], 1))
    mask = torch.full((6, 6), -torch.inf).triu(1)
    x = as_torch(model.decoder[0], nn.TransformerDecoderLayer)(x, encoded, tgt_mask=mask)
    torch.testing.assert_close(model.ahead(window), model.decoder_norm(x)[:, -3:], atol=1e-5, rtol=1e-5)


def as_torch(layer, kind):
    theirs = kind(8, 2, 32, dropout=0.0, activation="gelu", batch_first=True).eval()
    attentions = [theirs.self_attn, getattr(theirs, "multihead_attn", None)]
    for mine, their in zip(layer.attentions, attentions, strict=False):
        their.in_proj_weight.data = torch.cat([mine.query.weight, mine.key_value.weight])
        their.in_proj_bias.data = torch.cat([mine.query.bias, mine.key_value.bias])
        their.out_proj.load_state_dict(mine.out.state_dict())
    theirs.linear1.load_state_dict(layer.widen.state_dict())
    theirs.linear2.load_state_dict(layer.narrow.state_dict())
    for n, norm in enumerate(layer.norms):
        getattr(theirs, f"norm{n + 1}").load_state_dict(norm.state_dict())
    return theirs


@pytest.mark.parametrize("size", [(1, 9), (2, 3), (7, 1), (8, 9)])
def test_cropping_inception_kernels_does_not_change_the_output(size):
    torch.manual_seed(0)
    inception = Inception(2, 3, 4).double()
    picture = torch.randn(2, 2, *size, dtype=torch.float64)
    whole = nn.functional.conv2d(picture, inception.kernel(), inception.bias, padding=3)
    torch.testing.assert_close(inception(picture), whole)

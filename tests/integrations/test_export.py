"""Exported files against the estimators they come from: values, sizes, padding, metadata and refusals."""

from __future__ import annotations

import datetime as dt
import io
import json

import numpy as np
import polars as pl
import pytest
import torch

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor
from contiformer.integrations import export as export_module
from contiformer.integrations.examples import examples, generated, padded
from contiformer.integrations.formats import PT2_FILE, Onnx, PlainOperators, Pt2
from contiformer.integrations.graph import NormalScores, SeriesGraph
from contiformer.nn.attention import FixedShapes
from tests.estimators.problems import TINY, long_table, numbers, waves

pytestmark = [
    # tracing the tracers makes them several times slower
    pytest.mark.no_cover,
    pytest.mark.no_array_checks,
    pytest.mark.filterwarnings("ignore"),
]
#: Tracing time grows with the degree: the sizes are what is tested.
QUICK = {**TINY, "max_epochs": 1, "backbone_options": {"n_heads": 1, "degree": 3}}


@pytest.fixture(scope="module")
def data():
    return waves(12)


@pytest.fixture(scope="module")
def classifier(data):
    return Classifier.from_options(**QUICK, members=2, scaling="normal scores").fit(*data)


def graph_of(estimator, pieces=1):
    return SeriesGraph(estimator, FixedShapes(pieces, 2))


def ask(run, X, **others):
    """Run a graph or file on series [(times, values)], with rubbish in the padding."""
    longest = max(len(times) for times, _ in X) + 1
    times, values = np.full((len(X), longest), 9e9), np.full((len(X), longest, X[0][1].shape[1]), 7e7)
    for row, (t, v) in enumerate(X):
        times[row, : len(t)], values[row, : len(t)] = t, v
    return run({"times": times, "values": values, "lengths": np.array([len(t) for t, _ in X]), **others})


def eagerly(graph):
    return export_module._eagerly(graph)


def test_classifier_as_onnx(classifier, data, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    done = classifier.export(path, data[0])
    assert done.difference < 1e-5
    assert done.series == 12
    session = runtime.InferenceSession(path)
    assert [one.name for one in session.get_inputs()] == ["times", "values", "lengths"]
    assert [one.name for one in session.get_outputs()] == ["probabilities"]
    facts = json.loads(session.get_modelmeta().custom_metadata_map["contiformer"])
    assert facts["classes"] == ["a", "b"]
    assert facts["members"] == 2
    assert facts["check"]["largest_difference"] == done.difference
    run = Onnx().run(path.read_bytes())
    X = data[0]
    one, missing = X[0], (X[1][0], X[1][1].copy())
    missing[1][:, 0] = np.nan
    tied = (np.repeat(X[2][0][:2], 2), X[2][1][:4])
    for some in ([one], [(one[0][:1], one[1][:1])], [missing, tied, *X]):
        said = ask(run, some)["probabilities"]
        assert np.abs(said - classifier.predict_proba(some)).max() < 1e-5
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


def test_classifier_as_pt2(classifier, data, tmp_path):
    path = tmp_path / "model.pt2"
    done = classifier.export(path)
    assert "generated" in done.data
    files = {PT2_FILE: ""}
    program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=files)
    assert json.loads(files[PT2_FILE]) == done.metadata
    assert done.metadata["outputs"][0]["name"] == "probabilities"
    run = Pt2().run(path.read_bytes())
    for some in (data[0][:1], [(data[0][0][0][:1], data[0][0][1][:1])], data[0]):
        assert np.abs(ask(run, some)["probabilities"] - classifier.predict_proba(some)).max() < 1e-5
    assert set(program.module()(**{n: torch.from_numpy(x) for n, x in _inputs(data[0]).items()})) == {"probabilities"}


@pytest.mark.parametrize("beside", ["boosting", "rocket"])
def test_classifier_with_a_model_beside_it_as_pt2(beside, data, tmp_path):
    values = np.random.default_rng(3).random((12, 9, 2))
    X = [(times, np.where(values[n, : len(times)] < 0.3, np.nan, given)) for n, (times, given) in enumerate(data[0])]
    for _, given in X:
        given[0] = 1.0
    model = Classifier.from_options(**QUICK, beside=beside).fit(X, data[1])
    model.export(tmp_path / "model.pt2", X)
    run = Pt2().run((tmp_path / "model.pt2").read_bytes())
    assert np.abs(ask(run, X)["probabilities"] - model.predict_proba(X)).max() < 1e-5


def _inputs(X):
    found = {}
    ask(lambda given: found.update(given) or {}, X)
    return found


def test_forecaster_as_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    X = [(1.7e9 + 60.0 * np.arange(40), np.sin(np.arange(40)[:, None] * 0.3 + np.arange(2)) + 5000) for _ in range(2)]
    model = Forecaster.from_options(**QUICK, horizon=3, history=8, seasons=(600.0,)).fit(X)
    done = model.export(tmp_path / "model.onnx", X)
    assert done.metadata["forecast"] == done.metadata["forecast"] | {"history": 8, "horizon": 3, "step": 60.0}
    run = Onnx().run((tmp_path / "model.onnx").read_bytes())
    for some in (X, [(X[0][0][:3], X[0][1][:3])]):
        at = np.stack([t[-1] + 60.0 * np.arange(1, 4) for t, _ in some])
        said = ask(run, some, query_times=at)
        assert np.abs(said["mean"] - np.stack(model.predict(some))).max() < 1e-4
        levels = model.predict(some, quantiles=done.metadata["quantile_levels"])
        assert np.abs(said["quantiles"].reshape(len(some), 3, -1) - np.stack(levels)).max() < 1e-4


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_other_backbones_are_exported_where_they_can_be(kind, data, tmp_path):
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    model = Classifier.from_options(**{**QUICK, "backbone_options": None}, backbone="transformer").fit(*data)
    path = tmp_path / f"model.{kind}"
    assert model.export(path, data[0]).difference < 1e-5
    # no paths of the machine that wrote it
    assert b"site-packages" not in path.read_bytes()
    assert b"integrations/graph.py" not in path.read_bytes()


@pytest.mark.slow
def test_interpolator_as_onnx(data, tmp_path):
    pytest.importorskip("onnxruntime")
    model = Interpolator.from_options(**QUICK).fit(data[0])
    model.export(tmp_path / "model.onnx", data[0])
    run = Onnx().run((tmp_path / "model.onnx").read_bytes())
    at = np.array([[5.5, -1.0, 3.0]] * 12)
    said = ask(run, data[0], query_times=at)
    mean, std = model.predict(data[0], at=at[0], return_std=True)
    assert np.abs(said["mean"] - np.stack(mean)).max() < 1e-4
    assert np.abs(said["std"] - np.stack(std)).max() < 1e-4


# The graph before it is traced


@pytest.mark.parametrize("kind", [Classifier, Regressor, Interpolator])
def test_graph_gives_the_answers_of_the_estimator(kind, data):
    X, y = data
    answers = {Classifier: (y,), Regressor: (numbers(X),), Interpolator: ()}[kind]
    model = kind.from_options(**TINY, members=2).fit(X, *answers)
    graph = graph_of(model, pieces=3)
    checked = examples(model, model._read(X)[0], graph)
    assert export_module._largest(eagerly(graph), checked, export_module._scales(model, graph)) < 2e-5


@pytest.mark.parametrize("law", ["gaussian", "point", "quantiles"])
@pytest.mark.parametrize("origin", ["first", "global"])
def test_graph_of_a_forecaster(law, origin):
    X = [(np.arange(40.0) + 1e6, np.sin(np.arange(40)[:, None] * 0.3 + np.arange(2))) for _ in range(2)]
    options = {**QUICK, "law": law, "time_origin": origin, "members": 2}
    model = Forecaster.from_options(**options, horizon=3, history=8).fit(X)
    graph = graph_of(model, pieces=2)
    assert graph.outputs == ("mean", *{"gaussian": ("std",), "quantiles": ("quantiles",)}.get(law, ()))
    checked = examples(model, model._read(X)[0], graph)
    assert export_module._largest(eagerly(graph), checked, export_module._scales(model, graph)) < 1e-5


def test_graph_of_a_table_with_dates_categories_and_static_features(data):
    X, y = data
    table = long_table(X, y)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    table["hour"] = [start + dt.timedelta(hours=t) for t in table["hour"]]
    table["ward"] = [("north", "south", None)[n % 3] for n in range(len(table["hour"]))]
    table["age"] = [40.0 + 3 * int(who[1:]) for who in table["who"]]
    frame = pl.DataFrame(table)
    roles = {"id": "who", "time": "hour", "label": "kind", "static": ["age"], "categorical": ["ward"]}
    model = Classifier.from_options(**QUICK).fit(frame, **roles)
    graph = graph_of(model)
    assert graph.inputs == ("times", "values", "lengths", "static")
    checked = examples(model, model._read(frame)[0], graph)
    assert export_module._largest(eagerly(graph), checked, {"probabilities": 1.0}) < 1e-5
    facts = export_module.describe(model, graph)
    assert facts["time"]["kind"] == "dates with a time zone"
    assert "1970" in facts["time"]["meaning"]
    assert facts["categories"]["columns"] == {"ward": ["north", "south"]}
    assert [one["name"] for one in facts["channels"]] == ["pH", "pulse", "ward=north", "ward=south"]
    assert facts["static"] == ["age"]


def test_causal_model_over_several_pieces(data):
    X, y = data
    options = {**TINY, "backbone_options": {"n_heads": 2, "causal": True, "piece_length": 0.3}}
    model = Classifier.from_options(**options).fit(X, y)
    graph = graph_of(model)
    checked = examples(model, model._read(X)[0], graph)
    export_module._choose_shapes(graph, checked, {"probabilities": 1.0})
    assert graph.tasks[0].backbone.model.layers[0].attention.shapes.pieces > 3
    assert export_module._largest(eagerly(graph), checked, {"probabilities": 1.0}) < 1e-5


def test_normal_scores_are_those_of_numpy():
    scores = (((0.0, 1.0, 5.0), (-2.0, 0.5, 2.0)), ((3.0,), (0.25,)))
    x = np.array([[-1.0, 0.0], [0.3, 3.0], [5.0, 9.0], [7.0, 1.0], [np.nan, 2.0]])
    found = NormalScores(scores)(torch.from_numpy(x)).numpy()
    wanted = np.stack([np.interp(x[:, n], *one) for n, one in enumerate(scores)], 1)
    assert np.allclose(found, wanted, atol=1e-15, equal_nan=True)


def test_plain_operators_equal_those_they_replace():
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-5, 50, (2, 37, 3), generator=draw)
    known, asked = x[..., 0].double().sort(1).values, x[..., 1].double()
    wanted = x.cummax(1).values, x.cummin(1).values, torch.searchsorted(known, asked, right=True)
    with PlainOperators():
        found = x.cummax(1).values, x.cummin(1).values, torch.searchsorted(known, asked, right=True)
    assert all(map(torch.equal, found, wanted))


def test_generated_series_fit_the_model(classifier):
    found = generated(classifier)
    assert np.isfinite(classifier.predict_proba(found)).all()
    assert padded(examples(classifier, found, graph_of(classifier)))["values"].shape[2] == 2


# Refusals


def test_file_that_differs_is_not_written(data, tmp_path, monkeypatch):
    model = Classifier.from_options(**{**QUICK, "backbone_options": None}, backbone="transformer").fit(*data)
    said = Pt2.run

    def wrong(self, contents):
        run = said(self, contents)
        return lambda given: {name: x + 2e-4 for name, x in run(given).items()}

    monkeypatch.setattr(Pt2, "run", wrong)
    with pytest.raises(ValueError, match=r"differs from the estimator by 2\.0e-04.*nothing is written"):
        model.export(tmp_path / "model.pt2", data[0][:2])
    assert list(tmp_path.iterdir()) == []


def test_backbone_that_cannot_be_exported_is_named(data, tmp_path):
    model = Classifier.from_options(**{**QUICK, "backbone_options": None}, backbone="gru_d").fit(*data)
    with pytest.raises(ValueError, match=r"backbone 'gru_d' cannot be exported to pt2 \("):
        model.export(tmp_path / "model.pt2", data[0])
    assert list(tmp_path.iterdir()) == []


def test_window_of_too_many_pieces_is_refused(data, tmp_path):
    options = {**QUICK, "backbone_options": {"n_heads": 1, "degree": 3, "piece_length": 0.02}}
    model = Classifier.from_options(**options).fit(*data)
    with pytest.raises(ValueError, match=r"pieces of time, more than the 32"):
        model.export(tmp_path / "model.pt2", data[0])


def test_unknown_format_unfitted_models_and_events_are_refused(classifier, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.onnx or \.pt2"):
        classifier.export(tmp_path / "model.tflite")
    with pytest.raises(ValueError, match="there is no such folder"):
        classifier.export(tmp_path / "no" / "model.pt2")
    with pytest.raises(ValueError, match="not fitted"):
        Classifier().export(tmp_path / "model.pt2")
    with pytest.raises(ValueError, match="EventPredictor cannot be exported"):
        EventPredictor().export(tmp_path / "model.pt2")


def test_missing_extra_is_named(classifier, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"contiformer\[export\]"):
        classifier.export(tmp_path / "model.onnx")

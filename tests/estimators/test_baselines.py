"""Conformance of baselines: the contract of the estimators, for baselines of whole series."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from contiformer import Classifier, Interpolator, Regressor, TrainingOptions
from contiformer.data import DataError, Series, SeriesSet, summary_statistics
from contiformer.tasks.baselines import BASELINES

NAMES = [name for name, kind in BASELINES.items() if "classification" in kind.tasks]
QUICK = {"boosting": {"max_iter": 20}, "rocket": {"points": 32, "thresholds": 2}}


def problem(count=160, classes=3, seed=0, static=False):
    """Series whose level tells the class, some of them without a value in a channel."""
    rng = np.random.default_rng(seed)
    series = []
    for n in range(count):
        length = int(rng.integers(3, 20))
        values = rng.normal(size=(length, 2)) + 1.5 * (n % classes) * np.array([1.0, -1.0])
        values[rng.random(values.shape) < 0.3] = np.nan
        if n % 9 == 0:
            values[:, 1] = np.nan
        extra = rng.normal(size=2) if static else None
        series.append(Series.of(np.sort(rng.random(length)), values, static=extra, label=n % classes, id=n))
    return SeriesSet(series, classes=range(classes))


def classifier(name, **more):
    return Classifier(backbone=name, backbone_options=QUICK.get(name), **more)


@pytest.fixture(scope="module", params=NAMES)
def fitted(request):
    return classifier(request.param).fit(problem())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 3])
def test_baseline_learns_and_is_saved(name, classes, tmp_path):
    model = classifier(name).fit(problem(classes=classes, static=True))
    new = problem(classes=classes, seed=1, static=True)
    assert model.score(new) > 0.8
    assert model.metrics_["validation"]["accuracy"] > 0.8
    model.save(tmp_path)
    again = Classifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.safetensors",
        "config.json",
        "metrics.json",
        "README.md",
    }


@pytest.mark.parametrize("options", [{"backbone": "rocket"}, {"beside": "rocket"}])
def test_series_from_another_window_of_time_are_refused(options):
    shared = problem(count=40).map(lambda one: replace(one, times=np.linspace(0, 1, len(one))))
    model = Classifier(**options, training=TrainingOptions(max_epochs=1)).fit(shared)
    model.predict(shared[:3])
    moved = shared[:3].map(lambda one: replace(one, times=one.times + (5 if one.id == 1 else 0)))
    with pytest.raises(DataError, match="series 1 has times from 5 to 6, outside the window in which"):
        model.predict(moved)


@pytest.mark.parametrize("name", NAMES)
def test_baseline_learns_from_few_series(name):
    model = Classifier(backbone=name).fit(problem(count=24, classes=2))
    assert model.score(problem(classes=2, seed=1)) > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_baseline_tells_numbers(name, tmp_path):
    data, new = problem(), problem(seed=1)
    options = {"backbone": name, "backbone_options": QUICK.get(name)}
    model = Regressor(**options).fit(list(data), [100.0 + 10 * one.label for one in data])
    assert model.evaluate(list(new), [100.0 + 10 * one.label for one in new])["r2"] > 0.5
    model.save(tmp_path)
    np.testing.assert_array_equal(Regressor.load(tmp_path).predict(list(new)), model.predict(list(new)))


def test_answers_do_not_depend_on_batch_mates(fitted):
    new = problem(30, seed=2)
    together = fitted.predict_proba(new)
    alone = np.concatenate([fitted.predict_proba(new.select([n])) for n in range(len(new))])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1)


def test_fitting_is_reproducible(fitted):
    again = classifier(fitted.backbone).fit(problem())
    np.testing.assert_array_equal(again.predict_proba(problem(seed=3)), fitted.predict_proba(problem(seed=3)))


def test_short_and_empty_series_get_an_answer(fitted):
    nan = float("nan")
    short = [Series.of([0.5], [[1.0, nan]]), Series.of([0.5, 0.5], [[nan, nan]] * 2), Series.of([], np.zeros((0, 2)))]
    found = fitted.predict_proba(SeriesSet(short, schema=fitted.schema_))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_channel_that_is_never_observed_in_training(name):
    data = problem(40)
    empty = SeriesSet(
        [Series.of(s.times, np.c_[s.values, np.full(len(s), np.nan)], label=s.label) for s in data], classes=range(3)
    )
    model = classifier(name).fit(empty)
    seen = SeriesSet([Series.of([0.0, 1.0], [[1.0, 2.0, 3.0], [1.0, 2.0, 9.0]])])
    assert np.isfinite(model.predict_proba(empty)).all()
    assert np.isfinite(model.predict_proba(seen)).all()


def test_frames_come_back_as_frames():
    rows = [(one.id, t, *v) for one in problem(60) for t, v in zip(one.times, one.values, strict=True)]
    frame = pl.DataFrame(rows, schema=["who", "when", "a", "b"], orient="row")
    labels = {one.id: "yes" if one.label else "no" for one in problem(60)}
    for name in NAMES:
        model = classifier(name).fit(frame, labels, id="who", time="when")
        assert model.predict_proba(frame).columns == ["who", "no", "yes"]
        assert set(model.predict(frame)["class"]) == {"no", "yes"}


def test_series_without_weight_do_not_count():
    data = problem(classes=2)
    wrong = SeriesSet([Series.of(s.times, s.values, label=1 - s.label) for s in data], classes=(0, 1))
    both = SeriesSet([*data, *wrong], schema=data.schema)
    weight = [1.0] * len(data) + [0.0] * len(wrong)
    for name in NAMES:
        assert classifier(name).fit(both, sample_weight=weight).score(problem(classes=2, seed=1)) > 0.8


def test_class_weights_move_the_border():
    data = problem(classes=2)
    for name in NAMES:
        usual, leaning = (classifier(name, class_weight=w).fit(data) for w in (None, {0: 1.0, 1: 50.0}))
        assert (leaning.predict(data) == 1).sum() >= (usual.predict(data) == 1).sum()


def test_what_a_baseline_cannot_do_is_refused(fitted):
    data = problem(12)
    with pytest.raises(ValueError, match="one answer for each series"):
        Interpolator(backbone=fitted.backbone).fit(data)
    with pytest.raises(ValueError, match="does not fit the baseline"):
        Classifier(backbone=fitted.backbone, backbone_options={"n_heads": 3}).fit(data)
    with pytest.raises(ValueError, match="neither states nor attention"):
        fitted.embed(data)
    with pytest.raises(ValueError, match="no gradients"):
        fitted.explain(data[:2], "gradients")
    with pytest.raises(DataError, match="channels"):
        fitted.predict([([0.0, 1.0], [[1.0], [2.0]])])


def test_occlusion_explains_a_baseline(fitted):
    table = fitted.explain(problem(6, seed=4)[:3]).table()
    assert np.isfinite(table["attribution"].to_numpy()).all()


def test_trees_answer_as_those_of_scikit_learn():
    data, new = problem(), problem(seed=1)
    model = Classifier(backbone="boosting", backbone_options={"max_iter": 30}).fit(
        data, validation_data=problem(seed=2)
    )
    scaled = model.scaling_.apply(data), model.scaling_.apply(new)
    x, fresh = (summary_statistics(one)[0] for one in scaled)
    their = {"max_iter": 30, "learning_rate": 0.05, "max_leaf_nodes": 15, "l2_regularization": 1.0, "random_state": 0}
    their["min_samples_leaf"] = len(data) // 20
    held = summary_statistics(model.scaling_.apply(problem(seed=2)))[0]
    oracle = HistGradientBoostingClassifier(early_stopping=True, **their)
    oracle.fit(x, data.labels, X_val=held, y_val=problem(seed=2).labels)
    logits = oracle.decision_function(fresh) / float(model.tasks_[0].temperature)
    wanted = np.exp(logits - logits.max(1, keepdims=True))
    # the features of a batch are of float32 values, these of float64 ones
    close = np.isclose(model.predict_proba(new), wanted / wanted.sum(1, keepdims=True), atol=1e-6).all(1)
    assert close.mean() > 0.95

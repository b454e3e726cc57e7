import json

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from contiformer import Blend, Classifier, Regressor, TrainingOptions, load
from contiformer.data import DataError, Series, SeriesSet
from contiformer.estimators import Learner
from tests.estimators.test_baselines import problem

SMALL = [
    Classifier(backbone="boosting", backbone_options={"max_iter": 15}),
    Classifier(backbone="rocket", backbone_options={"points": 32, "thresholds": 1}),
]
NUMBERS = [Regressor(backbone=one.backbone, backbone_options=one.backbone_options) for one in SMALL]


@pytest.fixture(scope="module")
def blend():
    return Blend(SMALL, folds=2).fit(problem(90, classes=2))


def test_blend_is_at_least_as_good_as_its_members_out_of_fold(blend):
    whole = blend.metrics_["validation"]["loss"]
    # drawn to equal weights, it may lose a little
    assert whole < min(one["loss"] for one in blend.metrics_["members"].values()) + 0.02
    assert min(blend.weights_) >= 0
    assert sum(blend.weights_) == pytest.approx(1)


def test_saved_blend_answers_the_same(blend, tmp_path):
    new = problem(30, classes=2, seed=1)
    blend.save(tmp_path)
    again = Blend.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(new), blend.predict_proba(new))
    assert again.evaluate(new) == blend.evaluate(new)
    assert again.score(new) == pytest.approx(blend.evaluate(new)["accuracy"])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"weights": [2.0, -1.0]}))
    with pytest.raises(DataError, match="damaged"):
        Blend.load(tmp_path)
    with pytest.raises(DataError, match="Classifier is saved here"):
        Blend.load(tmp_path / "member0")


def test_useless_member_gets_little_weight():
    rng = np.random.default_rng(0)
    data = problem(200, classes=2)
    useless = Classifier(backbone="boosting", backbone_options={"max_iter": 1, "learning_rate": 1e-6})
    blend = Blend([SMALL[0], useless], folds=2)
    labels = np.array(data.labels)
    good = np.where(np.eye(2)[labels] > 0, 0.9, 0.1)
    bad = rng.dirichlet([1, 1], len(labels))
    blend._find_weights(np.stack([good, bad]), labels, np.ones(len(labels)))
    assert blend.weights_[0] > 0.9


def test_equal_members_share_the_weight():
    labels = np.arange(40) % 2
    said = np.where(np.eye(2)[labels] > 0, 0.8, 0.2)
    blend = Blend(SMALL)
    blend._find_weights(np.stack([said, said]), labels, np.ones(40))
    assert blend.weights_ == pytest.approx([0.5, 0.5], abs=0.02)


def test_blend_of_regressors(tmp_path):
    data, new = problem(90), problem(60, seed=1)
    blend = Blend(NUMBERS, task="regression", folds=2).fit(list(data), [10.0 * one.label for one in data])
    truth = [10.0 * one.label for one in new]
    assert blend.evaluate(list(new), truth)["r2"] > 0.4
    assert blend.score(list(new), truth) == pytest.approx(blend.evaluate(list(new), truth)["r2"])
    blend.save(tmp_path)
    np.testing.assert_array_equal(Blend.load(tmp_path).predict(list(new)), blend.predict(list(new)))
    with pytest.raises(AttributeError, match="numbers"):
        blend.predict_proba(list(new))


def test_blend_reads_frames():
    rows = [(one.id, t, *v) for one in problem(40, classes=2) for t, v in zip(one.times, one.values, strict=True)]
    frame = pl.DataFrame(rows, schema=["who", "when", "a", "b"], orient="row")
    labels = {one.id: "yes" if one.label else "no" for one in problem(40, classes=2)}
    blend = Blend(SMALL, folds=2).fit(frame, labels, id="who", time="when")
    assert blend.predict_proba(frame).columns == ["who", "no", "yes"]


def test_wrong_use_is_refused():
    with pytest.raises(NotFittedError):
        Blend(SMALL).predict(problem(10))
    with pytest.raises(ValueError, match="task"):
        Blend(SMALL, task="events")
    with pytest.raises(ValueError, match="members"):
        Blend([])
    with pytest.raises(ValueError, match="members must be names"):
        Blend(NUMBERS).fit(problem(10))


def test_rare_class_may_be_missing_in_a_fold():
    rare = problem(40, classes=2)
    data = SeriesSet([*rare, Series.of([0.0, 1.0], [[9.0, 9.0], [9.0, 9.0]], label=2)], classes=(0, 1, 2))
    assert Blend(SMALL, folds=2).fit(data).predict_proba(data).shape == (41, 3)


def test_stopped_blend_goes_on_at_the_member_and_fold_it_was_at(tmp_path, monkeypatch):
    data, new = problem(40, classes=2), problem(20, classes=2, seed=1)
    tiny = TrainingOptions(max_epochs=2, min_steps=0, verbose=0)
    members = [SMALL[0], Classifier(d_model=8, n_layers=1, training=tiny)]
    whole = Blend(members, folds=2).fit(data)
    fit, trained = Classifier.fit, []

    def stopped_at(count):
        def counted(self, *args, **how):
            if len(trained) == count:
                raise KeyboardInterrupt
            trained.append(self.backbone)
            return fit(self, *args, **how)

        return counted

    # two members, two folds, and both on everything: 6 trainings
    for stop in (1, 3, 5):
        trained.clear()
        monkeypatch.setattr(Classifier, "fit", stopped_at(1 if stop == 1 else 2))
        with pytest.raises(KeyboardInterrupt):
            Blend(members, folds=2, run_dir=tmp_path).fit(data)
    trained.clear()
    monkeypatch.setattr(Classifier, "fit", stopped_at(None))
    again = Blend(members, folds=2, run_dir=tmp_path).fit(data)
    # what is fitted to all series is fitted again, from its last checkpoint
    assert trained == ["boosting", "contiformer"]
    assert again.weights_ == whole.weights_
    np.testing.assert_array_equal(again.predict_proba(new), whole.predict_proba(new))
    np.testing.assert_array_equal(load(tmp_path).predict_proba(new), whole.predict_proba(new))
    with pytest.raises(DataError, match="other data"):
        Blend(members, folds=2, run_dir=tmp_path).fit(new)


def test_load_finds_the_kind_of_a_folder(blend, tmp_path):
    blend.save(tmp_path)
    assert isinstance(load(tmp_path), Blend)
    assert isinstance(load(tmp_path / "member1"), Classifier)
    with pytest.raises(DataError, match=r"Blend\.load"):
        Learner.load(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.suffix not in ("", ".json", ".md", ".safetensors")]


def test_fitted_models_are_blended_by_held_out_series():
    train, held, new = (problem(120, classes=2, seed=seed) for seed in range(3))
    models = [one.__class__(**one.get_params(deep=False)).fit(train) for one in SMALL]
    blend = Blend.of_fitted(models, held)
    assert sum(blend.weights_) == pytest.approx(1)
    assert blend.metrics_["validation_series"] == 120
    assert blend.evaluate(new)["loss"] < max(one.evaluate(new)["loss"] for one in models) + 0.02
    with pytest.raises(ValueError, match="members"):
        blend.explain(new)
    with pytest.raises(ValueError, match="members"):
        blend.export("model.onnx")


def test_models_of_other_classes_channels_or_tasks_are_not_blended(tmp_path, blend):
    other = SMALL[0].__class__(**SMALL[0].get_params(deep=False)).fit(problem(60, classes=3))
    with pytest.raises(DataError, match=r"model 1 has the classes \(0, 1, 2\), and model 0 has \(0, 1\)"):
        Blend.of_fitted([blend.fitted_[0], other], problem(20, classes=2))
    single = SeriesSet([Series.of(s.times, s.values[:, :1], label=s.label) for s in problem(60, classes=2)])
    narrow = Classifier(backbone="boosting", backbone_options={"max_iter": 5}).fit(single)
    with pytest.raises(DataError, match="channels"):
        Blend.of_fitted([blend.fitted_[0], narrow], problem(20, classes=2))
    blend.save(tmp_path)
    other.save(tmp_path / "member1")
    with pytest.raises(DataError, match="classes"):
        Blend.load(tmp_path)

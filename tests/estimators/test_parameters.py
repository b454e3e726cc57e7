"""Estimator parameters: training options, defaults of backbones, validation."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor
from contiformer.backbones.contiformer import ContiFormerBackbone
from contiformer.estimators import ESTIMATORS, base
from contiformer.estimators.input_checks import check_parameters
from contiformer.estimators.tables import read
from contiformer.training.options import TrainingOptions
from reproduction.experiments import configuration
from tests.estimators.problems import TINY, TINY_EVENTS


@pytest.mark.parametrize("name", ESTIMATORS)
def test_training_options_that_are_set_arrive_and_others_have_the_defaults_of_the_estimator(name):
    estimator = ESTIMATORS[name](training=TrainingOptions(verbose=0, weight_decay=0.3))
    options = estimator.training_options()
    assert (options.verbose, options.weight_decay) == (0, 0.3)
    assert set(options.set_options()) == {field.name for field in fields(TrainingOptions)}
    for option, value in estimator.training_defaults.items():
        assert option == "weight_decay" or getattr(options, option) == value


@pytest.mark.parametrize("name", ESTIMATORS)
def test_invalid_training_options_are_refused(name):
    with pytest.raises(ValueError, match="learning_rate must be positive, got -1"):
        ESTIMATORS[name](training=TrainingOptions(learning_rate=-1.0)).training_options()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_have_few_parameters(name):
    assert len(ESTIMATORS[name]().get_params(deep=False)) <= 18


def test_a_training_option_beside_the_parameters_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"max_epochs is an option of the training: pass training=TrainingOptions\(max"):
        Classifier(max_epochs=3)


def test_training_options_of_a_wrong_type_are_refused(X, y):
    with pytest.raises(ValueError, match="max_epochs must be a whole number or None, got 'many'"):
        Classifier(training=TrainingOptions(max_epochs="many")).fit(X, y)
    with pytest.raises(ValueError, match="training must be a TrainingOptions or None"):
        Classifier(training={"max_epochs": 3}).fit(X, y)


def test_max_epochs_is_a_maximum(X, y):
    quick = TrainingOptions(max_epochs=1, verbose=0)
    for model in (Classifier(d_model=8, training=quick).fit(X, y), Interpolator(d_model=8, training=quick).fit(X)):
        assert len(model.history_) == model.metrics_["epochs"][0] == 1
    events = [([0.0, 1.0, 2.0, 3.5], [0, 1, 0, 1])] * 6
    assert len(EventPredictor(backbone="rmtpp", d_model=8, training=quick).fit(events).history_) == 1
    # also where a small set would get more
    assert TrainingOptions(max_epochs=3).with_defaults(epochs=24, min_steps=400).epochs_for(1) == 3
    assert TrainingOptions().with_defaults(epochs=24, min_steps=400).epochs_for(10) == 40
    assert TrainingOptions().with_defaults(epochs=24, min_steps=400).epochs_for(1000) == 24


def test_training_options_are_nested_parameters():
    classifier = Classifier(training=TrainingOptions(seed=3))
    assert classifier.get_params()["training__seed"] == 3
    copy = clone(classifier).set_params(training__learning_rate=0.1, d_model=8)
    assert copy.training == TrainingOptions(seed=3, learning_rate=0.1)
    assert classifier.training == TrainingOptions(seed=3)
    with pytest.raises(ValueError, match="there is no training option 'learning_rat'; did you mean 'learning_rate'"):
        classifier.set_params(training__learning_rat=0.1)


def test_parameters_that_cannot_be_set_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"Invalid parameter 'max_epochs' .* use training__max_epochs"):
        Classifier().set_params(max_epochs=3)
    with pytest.raises(ValueError, match="Invalid parameter 'task_name'"):
        Classifier().set_params(task_name="regression")
    with pytest.raises(ValueError, match=r"training must be a TrainingOptions or None, got \{'seed': 1\}"):
        Classifier(training={"seed": 1}).set_params(training__max_epochs=3)


@pytest.mark.parametrize(
    ("kind", "option"),
    [(EventPredictor, {"keep_points": 0.5}), (EventPredictor, {"warp": 0.2}), (Classifier, {"validation_limit": 8})],
)
def test_training_options_without_effect_are_refused(X, y, kind, option):
    given = (X, y) if kind is Classifier else ([([0.0, 1.0, 2.5], [0, 1, 0])] * 6,)
    with pytest.raises(ValueError, match=f"{next(iter(option))} has no effect on {kind.__name__}"):
        kind(training=TrainingOptions(**option)).fit(*given)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_options_of_an_estimator_can_be_given_back(name):
    check_parameters(ESTIMATORS[name].from_options(**ESTIMATORS[name]().to_options()))


def test_grid_search_over_training_options(X, y):
    search = GridSearchCV(Classifier.from_options(**TINY), {"training__learning_rate": [1e-3, 1e-2]}, cv=2).fit(X, y)
    assert search.best_params_["training__learning_rate"] in (1e-3, 1e-2)
    assert search.best_estimator_.training.verbose == 0


# beartype draws the items that it checks from Python's random
@pytest.mark.no_array_checks
@pytest.mark.parametrize("kind", [Classifier, EventPredictor])
def test_fit_leaves_global_random_states_alone(X, y, kind):
    events = [([0.0, 1.0, 2.5], [0, 1, 0])] * 6
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    model = kind.from_options(**{**TINY, "window": 1} if kind is Classifier else TINY_EVENTS)
    model.fit(*((X, y) if kind is Classifier else (events,)))
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


@pytest.mark.parametrize("kind", [Classifier, EventPredictor])
def test_fit_builds_the_backbone_once(X, y, kind, monkeypatch):
    built = []
    init = ContiFormerBackbone.__init__

    def count(self, *args, **options):
        built.append(self)
        init(self, *args, **options)

    monkeypatch.setattr(ContiFormerBackbone, "__init__", count)
    if kind is Classifier:
        Classifier.from_options(**TINY).fit(X, y)
    else:
        EventPredictor.from_options(**TINY_EVENTS).fit([([0.0, 1.0, 2.5], [0, 1, 0])] * 6)
    assert len(built) == 1


@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_score_and_evaluate_parse_the_data_once(X, y, kind, monkeypatch):
    answers = y if kind is Classifier else [float(n) for n in range(len(X))]
    model = kind.from_options(**TINY).fit(X, answers)
    reads = []
    monkeypatch.setattr(base, "read", lambda *a, **k: (reads.append(1), read(*a, **k))[1])
    model.score(X, answers)
    assert len(reads) == 1
    model.evaluate(X, answers)
    assert len(reads) == 2


def test_mixed_precision_clips_gradients_too(X, y):
    model = Classifier.from_options(
        **{**TINY, "precision": "bf16-mixed", "accelerator": "cpu", "gradient_clip": 1.0}
    ).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("given", "norm", "scale"),
    [(None, "entry", 0.3), ({"norm": "end"}, "end", 0.3), ({"norm": "end", "encoding_scale": 1.0}, "end", 1.0)],
)
def test_classifier_defaults_of_norm_and_encoding_scale_can_be_overridden(X, y, given, norm, scale):
    model = Classifier.from_options(**{**TINY, "backbone_options": given}).fit(X, y)
    assert model.get_params()["backbone_options"] is given
    options = configuration(model)["backbone_options"]
    assert (options["norm"], options["encoding_scale"]) == (norm, scale)
    layer = model.tasks_[0].backbone.model.layers[0]
    assert isinstance(layer.feed_forward_norm, torch.nn.LayerNorm) is (norm == "end")
    assert (
        "norm"
        not in Classifier.from_options(**{**TINY, "backbone": "s5", "backbone_options": None})._backbone_options()
    )


@pytest.mark.parametrize("kind", [Interpolator, Forecaster])
@pytest.mark.parametrize("scaling", ["normal scores", "auto"])
def test_rank_scaling_of_predicted_values_is_refused(X, kind, scaling):
    with pytest.raises(ValueError, match=r"scaling must be (one of )?'standard'"):
        kind.from_options(**TINY, scaling=scaling).fit(X)

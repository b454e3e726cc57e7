"""Estimators repeat the options of the training in their signature, as scikit-learn wants it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from contiformer import Classifier
from contiformer.estimators import ESTIMATORS
from contiformer.experiments.recipe import configuration
from contiformer.training.options import TrainingOptions
from tests.estimators.problems import TINY


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_option_of_the_training_is_a_parameter_and_arrives(name):
    estimator = ESTIMATORS[name](verbose=0)
    options = estimator._training_options()
    for field in fields(TrainingOptions):
        assert getattr(options, field.name) == getattr(estimator, field.name)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_options_that_cannot_be_trained_with_are_refused(name):
    with pytest.raises(ValueError, match="learning_rate must be positive, got -1"):
        ESTIMATORS[name](learning_rate=-1.0)._training_options()


def test_mixed_precision_clips_gradients_too(X, y):
    model = Classifier(**{**TINY, "precision": "bf16-mixed", "accelerator": "cpu", "gradient_clip": 1.0}).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("given", "norm", "scale"),
    [(None, "entry", 0.3), ({"norm": "end"}, "end", 0.3), ({"norm": "end", "encoding_scale": 1.0}, "end", 1.0)],
)
def test_a_classifier_has_its_own_kind_of_layer_unless_told_otherwise(X, y, given, norm, scale):
    model = Classifier(**{**TINY, "backbone_options": given}).fit(X, y)
    assert model.get_params()["backbone_options"] is given
    options = configuration(model)["backbone_options"]
    assert (options["norm"], options["encoding_scale"]) == (norm, scale)
    layer = model.tasks_[0].backbone.model.layers[0]
    assert isinstance(layer.feed_forward_norm, torch.nn.LayerNorm) is (norm == "end")
    assert "norm" not in Classifier(**{**TINY, "backbone": "s5", "backbone_options": None})._backbone_options()

"""Estimators in the manner of scikit-learn: fit, predict, save, load."""

from __future__ import annotations

from contiformer.estimators.base import Estimator
from contiformer.estimators.blend import Blend, load
from contiformer.estimators.classifier import Classifier
from contiformer.estimators.comparison import Comparison, compare
from contiformer.estimators.event_predictor import EventPredictor
from contiformer.estimators.explanation import Explanation
from contiformer.estimators.forecaster import Forecaster
from contiformer.estimators.interpolator import Interpolator
from contiformer.estimators.learner import Learner
from contiformer.estimators.regressor import Regressor

#: By the name that is saved with a model.
ESTIMATORS: dict[str, type[Learner]] = {
    kind.__name__: kind for kind in (Classifier, EventPredictor, Forecaster, Interpolator, Regressor)
}

__all__ = ["ESTIMATORS", "Blend", "Comparison", "Estimator", "Explanation", "Learner", "compare", "load"]
__all__ += list(ESTIMATORS)

"""Continuous-time transformers for irregular time series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.backbones import ContiFormer
    from contiformer.estimators import Classifier, EventPredictor, Forecaster, Interpolator, Regressor

__version__ = "0.1.0"

__all__ = ["Classifier", "ContiFormer", "EventPredictor", "Forecaster", "Interpolator", "Regressor", "__version__"]


# torch is imported with the first model, not with the package: `contiformer --help` answers at once
__getattr__ = lazy_names(
    __name__,
    {
        "Classifier": "estimators",
        "ContiFormer": "backbones",
        "EventPredictor": "estimators",
        "Forecaster": "estimators",
        "Interpolator": "estimators",
        "Regressor": "estimators",
    },
)

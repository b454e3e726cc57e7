"""Continuous-time transformers for irregular time series."""
# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.backbones import ContiFormer
    from contiformer.estimators import (
        Blend,
        Classifier,
        EventPredictor,
        Forecaster,
        Interpolator,
        Regressor,
        compare,
        load,
    )
    from contiformer.native import use_kernels
    from contiformer.training import TrainingOptions

__version__ = "0.1.0"

# torch is imported with the first model, not with the package: `contiformer --help` answers at once
__getattr__, __all__ = lazy_names(
    __name__,
    {
        "backbones": ["ContiFormer"],
        "estimators": [
            "Blend",
            "Classifier",
            "EventPredictor",
            "Forecaster",
            "Interpolator",
            "Regressor",
            "compare",
            "load",
        ],
        "native": ["use_kernels"],
        "training": ["TrainingOptions"],
    },
)
__all__ += ["__version__"]

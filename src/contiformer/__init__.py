"""Continuous-time transformers for irregular time series."""

from contiformer.backbones import ContiFormer

__version__ = "0.1.0"

__all__ = ["ContiFormer", "__version__"]

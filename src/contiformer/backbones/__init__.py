"""Models from observations to states at any time."""

from contiformer.backbones.contiformer import ContiFormer

__all__ = ["ContiFormer"]

"""Continuous-time transformers for irregular time series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contiformer.backbones import ContiFormer

__version__ = "0.1.0"

__all__ = ["ContiFormer", "__version__"]


def __getattr__(name: str) -> Any:
    # torch is imported with the first model, not with the package: `contiformer --help` answers at once
    if name == "ContiFormer":
        from contiformer.backbones import ContiFormer  # noqa: PLC0415

        return ContiFormer
    raise AttributeError(f"module 'contiformer' has no attribute {name!r}")

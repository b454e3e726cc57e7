"""HTTP API and explorer page of trained models: ``contiformer serve`` and ``contiformer explore``."""
# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.serving.app import create_app
    from contiformer.serving.limits import Limits

__getattr__, __all__ = lazy_names(__name__, {"app": ["create_app"], "limits": ["Limits"]})

"""Intensities by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from contiformer.tasks.events.heads.base import IntensityHead
from contiformer.tasks.events.heads.exponential import ExponentialHead
from contiformer.tasks.events.heads.hazard import HazardHead
from contiformer.tasks.events.heads.sahp import ConvergingHead
from contiformer.tasks.events.heads.softplus import SoftplusHead

#: Intensities that are read from the state at the last event.
HEADS: dict[str, Callable[..., IntensityHead]] = {
    "hazard": HazardHead,
    "thp": partial(SoftplusHead, relative=True),
    "thp-elapsed": partial(SoftplusHead, relative=False),
    "sahp": ConvergingHead,
    "rmtpp": ExponentialHead,
}

__all__ = ["HEADS", "ConvergingHead", "ExponentialHead", "HazardHead", "IntensityHead", "SoftplusHead"]

"""Marked temporal point processes: intensities, likelihood, prediction and sampling."""

from __future__ import annotations

from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.likelihood import intervals, log_likelihood
from contiformer.tasks.events.memory import Memory
from contiformer.tasks.events.next_event import NextEvent, expect, quantile
from contiformer.tasks.events.quadrature import IntegralRule
from contiformer.tasks.events.task import EventTask

__all__ = [
    "EventTask",
    "IntegralRule",
    "IntensityModel",
    "Memory",
    "NextEvent",
    "expect",
    "intervals",
    "log_likelihood",
    "quantile",
]

"""Baselines: models that are fitted in seconds, without a training loop."""

from __future__ import annotations

from typing import Any

from contiformer.tasks.baselines.base import DirectTask
from contiformer.tasks.baselines.boosting import Boosting
from contiformer.tasks.baselines.rocket import Rocket
from contiformer.tasks.baselines.values import LastValue, SeasonalNaive, StraightLines

#: Every baseline by its name, which an estimator takes in place of a backbone's.
BASELINES: dict[str, type[DirectTask]] = {
    "boosting": Boosting,
    "rocket": Rocket,
    "last-value": LastValue,
    "linear": StraightLines,
    "seasonal-naive": SeasonalNaive,
}

__all__ = ["BASELINES", "DirectTask", "make_baseline"]


def make_baseline(name: str, **options: Any) -> DirectTask:
    """A baseline by name, not yet fitted."""
    try:
        return BASELINES[name](**options)
    except TypeError as error:
        raise ValueError(f"an option does not fit the baseline {name!r}: {error}") from error

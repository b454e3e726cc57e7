"""Baselines: models of whole series that are fitted in seconds, without a training loop."""

from __future__ import annotations

from typing import Any

from contiformer.tasks.baselines.base import Baseline
from contiformer.tasks.baselines.boosting import Boosting
from contiformer.tasks.baselines.rocket import Rocket

#: Every baseline by its name, which an estimator takes in place of a backbone's.
BASELINES: dict[str, type[Baseline]] = {"boosting": Boosting, "rocket": Rocket}

__all__ = ["BASELINES", "Baseline", "make_baseline"]


def make_baseline(name: str, **options: Any) -> Baseline:
    """A baseline by name, not yet fitted."""
    try:
        return BASELINES[name](**options)
    except TypeError as error:
        raise ValueError(f"an option does not fit the baseline {name!r}: {error}") from error

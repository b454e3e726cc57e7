"""What is finite and yet too much for float32: said by name instead of answered with NaN."""

from __future__ import annotations

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet

#: In standard deviations of the training data, and in the model's unit of time: squares of them fit into float32.
LARGEST_VALUE = 1e15
FARTHEST_TIME = 1e9


def refuse_endless(scaling: Scaling) -> None:
    """Refuse a scaling that was fitted on values whose squares are infinite.

    Raises:
        DataError: naming the channel.
    """
    for name, mean, std in zip(scaling.channels, scaling.mean, scaling.std, strict=True):
        if not (np.isfinite(mean) and np.isfinite(std)):
            raise DataError(f"the values of channel {name!r} are too large", remedy="give it in a larger unit")
    others = (*scaling.static_mean, *scaling.static_std, *scaling.target_mean, *scaling.target_std)
    if not np.isfinite(others).all():
        raise DataError("static features or targets are too large", remedy="give them in a larger unit")


def refuse_extreme(scaled: SeriesSet) -> None:
    """Refuse values and times that have nothing to do with what the model was trained on.

    Raises:
        DataError: naming series and channel.
    """
    for n, series in enumerate(scaled):
        name = f"series {n if series.id is None else repr(series.id)}"
        largest = np.nan_to_num(np.abs(series.values)).max(axis=0, initial=0.0)
        if largest.max(initial=0.0) > LARGEST_VALUE:
            channel = int(largest.argmax())
            raise DataError(
                f"{name} has a value in channel {scaled.channels[channel]!r} that is {largest[channel]:.1g} standard "
                "deviations away from the training data",
                remedy="use NaN for what was not observed",
            )
        refuse_far(series.times, name)


def refuse_far(times: np.ndarray, name: str) -> None:
    """Refuse scaled times that are far beyond everything."""
    farthest = float(np.abs(times).max(initial=0.0))
    if not farthest <= FARTHEST_TIME:
        raise DataError(
            f"{name} has a time {farthest:.1g} spans of a training series away", remedy="are the units of time right?"
        )

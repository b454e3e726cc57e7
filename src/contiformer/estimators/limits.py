"""What is finite and yet too much for float32: said by name instead of answered with NaN."""

from __future__ import annotations

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet

#: In standard deviations of the training data, and in the model's unit of time: squares of them fit into float32.
LARGEST_VALUE = 1e15
FARTHEST_TIME = 1e9
_SQUARABLE = 1e140
#: Of a sequence of events, in the longest one of the training: trajectories are followed in so many pieces at most.
LONGEST_SEQUENCE = 4000.0


def refuse_endless(data: SeriesSet) -> None:
    """Refuse training data whose squares are infinite in float64.

    Raises:
        DataError: naming series, and channel, feature or target.
    """
    schema = data.schema
    for n, series in enumerate(data):
        for names, values in (
            (schema.channels, series.values),
            (schema.static, series.static),
            (schema.targets, series.target_values),
        ):
            if values is None:
                continue
            largest = np.nan_to_num(np.abs(np.atleast_2d(values))).max(axis=0, initial=0.0)
            if float(largest.max(initial=0.0)) > _SQUARABLE:
                raise DataError(
                    f"series {n if series.id is None else repr(series.id)} has the value {largest.max():.1g} in "
                    f"{names[int(largest.argmax())]!r}",
                    remedy="use NaN for what was not observed, or give it in a larger unit",
                )


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


def refuse_long(scaled: EventSet, span: float) -> None:
    """Refuse sequences of events that last far longer than those of the training, whose trajectories would not end.

    Raises:
        DataError: naming the sequence.
    """
    for n, one in enumerate(scaled):
        if len(one):
            refuse_lasting(float(one.times[-1]) / span, f"sequence {n if one.id is None else repr(one.id)}")


def refuse_lasting(lasts: float, name: str) -> None:
    """Refuse one that lasts so many times as long as the longest of the training."""
    if not lasts <= LONGEST_SEQUENCE:
        raise DataError(
            f"{name} lasts {lasts:.1g} times as long as the longest of the training",
            remedy="are the units of time right? If so, cut it at its longest wait",
        )

"""Checks when they are used: parameters by type and range, and data that float32 or the model cannot take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from torch import nn

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.tasks.baselines.rocket import Rocket
from contiformer.training.options import TrainingOptions

_KINDS: dict[Any, Any] = {int: Integral, float: Real, tuple: Sequence}
_NAMES = {int: "a whole number", float: "a number", str: "a word", NoneType: "None", dict: "a dictionary"}

#: Least and largest value, and whether the least itself is allowed.
_RANGES = {
    "d_model": (1, math.inf, True),
    "n_layers": (1, math.inf, True),
    "members": (1, math.inf, True),
    "window": (0, 30, True),
    "dropout": (0, 0.999, True),
    "keep_points": (0, 1, False),
    "noise": (0, 1e6, True),
    "limit": (1, math.inf, True),
    "warp": (0, 10, True),
    "most_points": (1, math.inf, True),
    "label_smoothing": (0, 0.999, True),
    "num_types": (1, 1_000_000, True),
}
#: In standard deviations of the training data, and in the model's unit of time: squares of them fit into float32.
LARGEST_VALUE = 1e15
FARTHEST_TIME = 1e9
_SQUARABLE = 1e140


def refuse_endless(data: SeriesSet) -> None:
    """Refuse training data whose squares are infinite in float64."""
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
    """Refuse values and times that have nothing to do with what the model was trained on."""
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


def refuse_elsewhen(task: nn.Module, data: SeriesSet, scaled: SeriesSet) -> None:
    """Refuse series outside the window of all training series, where the model reads that window."""
    windows = [part.window for part in task.modules() if isinstance(part, Rocket) and part.window is not None]
    for n, (one, moved) in enumerate(zip(data, scaled) if windows else ()):
        if len(moved) and (moved.times[-1] < 0 or moved.times[0] > windows[0]):
            raise DataError(
                f"series {n if one.id is None else repr(one.id)} has times from {one.times[0]:g} to {one.times[-1]:g}, "
                "outside the window in which all training series were recorded",
                remedy="give times that count from the same start as in training",
            )


def last_part(length: int, share: float, what: str, use: str = "validation") -> int:
    """The start of the last ``share`` of one series divided along time; both parts have two points or more."""
    border = length - max(2, round(share * length))
    if border < 2:
        remedy = f"give more, or several series (id= tells them apart), or separate {use} data"
        raise DataError(f"one {what} cannot be divided into training and {use}", remedy=remedy)
    return border


def refuse_non_finite(values: np.ndarray, series: Any) -> None:
    """Refuse an answer for a series that is not finite."""
    if not np.isfinite(values).all():
        raise DataError(
            f"the answer for series {series.id!r} is not finite", remedy="are its values and times in the right units?"
        )


def refuse_far(times: np.ndarray, name: str) -> None:
    """Refuse scaled times that are far beyond everything."""
    farthest = float(np.abs(times).max(initial=0.0))
    if not farthest <= FARTHEST_TIME:
        raise DataError(
            f"{name} has a time {farthest:.1g} spans of a training series away", remedy="are the units of time right?"
        )


def refuse_long(scaled: EventSet, span: float, longest: float) -> None:
    """Refuse sequences of events that last more than ``longest`` times as long as the longest of the training.

    Raises:
        DataError: naming the sequence.
    """
    for n, one in enumerate(scaled):
        if len(one):
            refuse_lasting(float(one.times[-1]) / span, longest, f"sequence {n if one.id is None else repr(one.id)}")


def refuse_lasting(lasts: float, longest: float, name: str) -> None:
    """Refuse a sequence that lasts so many times as long as the longest of the training."""
    if not lasts <= longest:
        raise DataError(
            f"{name} lasts {lasts:.1g} times as long as the longest of the training",
            remedy="are the units of time right? If so, cut it at its longest wait",
        )


def check_parameters(estimator: Any) -> None:
    """Refuse parameters of the wrong type or size.

    Raises:
        ValueError: naming the parameter, what it may be and what it is.
    """
    _check(estimator, {field.name: getattr(estimator, field.name) for field in fields(estimator)})
    if estimator.training is None:
        return
    given = estimator.training.set_options()
    _check(estimator.training, given)
    usual = TrainingOptions().with_defaults(**estimator.training_defaults)
    for name in estimator.unused_options & set(given):
        if given[name] != getattr(usual, name):
            raise ValueError(f"{name} has no effect on {type(estimator).__name__}, got {given[name]!r}: leave it out")


def _check(owner: Any, values: Mapping[str, Any]) -> None:
    hints = get_type_hints(type(owner))
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise ValueError(f"{name} must be {described(hints[name])}, got {value!r}")
        least, most, itself = _RANGES.get(name, (-math.inf, math.inf, True))
        if name in _RANGES and value is not None and not (least <= value <= most and (itself or value > least)):
            lower = f"{'at least' if itself else 'above'} {least:g}"
            upper = "" if most == math.inf else f" and at most {most:g}"
            raise ValueError(f"{name} must be {lower}{upper}, got {value!r}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type of a parameter: a list may be a tuple, a whole number any number."""
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in get_args(hint))
    kind = origin or hint
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool) or (isinstance(value, str) and kind is not str):
        return False
    if not isinstance(value, _KINDS.get(kind, kind)):
        return False
    inner = get_args(hint) if kind is tuple else ()
    if Ellipsis in inner:
        inner = inner[:1] * len(value)
    return not inner or (len(inner) == len(value) and all(map(fits, value, inner)))


def described(hint: Any) -> str:
    """The type of a parameter in words."""
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin in (Union, UnionType):
        return " or ".join(described(one) for one in get_args(hint))
    kind = origin or hint
    return _NAMES.get(kind, f"a {kind.__name__}")

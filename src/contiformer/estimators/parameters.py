"""Parameters are stored as they come and checked when they are used, as scikit-learn wants it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
    "warp": (0, 10, True),
    "most_points": (1, math.inf, True),
    "label_smoothing": (0, 0.999, True),
    "num_types": (1, 1_000_000, True),
}


def check_parameters(estimator: Any) -> None:
    """Refuse parameters of the wrong type or size.

    Raises:
        ValueError: naming the parameter, what it may be and what it is.
    """
    hints = get_type_hints(type(estimator))
    for field in fields(estimator):
        value = getattr(estimator, field.name)
        if not _fits(value, hints[field.name]):
            raise ValueError(f"{field.name} must be {_described(hints[field.name])}, got {value!r}")
        least, most, itself = _RANGES.get(field.name, (-math.inf, math.inf, True))
        if field.name in _RANGES and value is not None and not (least <= value <= most and (itself or value > least)):
            lower = f"{'at least' if itself else 'above'} {least:g}"
            upper = "" if most == math.inf else f" and at most {most:g}"
            raise ValueError(f"{field.name} must be {lower}{upper}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    kind = origin or hint
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool) or (isinstance(value, str) and kind is not str):
        return False
    return isinstance(value, _KINDS.get(kind, kind))


def _described(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin in (Union, UnionType):
        return " or ".join(_described(one) for one in get_args(hint))
    kind = origin or hint
    return _NAMES.get(kind, f"a {kind.__name__}")

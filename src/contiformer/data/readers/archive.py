"""Numbers of an archive's text files, at once or one by one, and the sets they make: shared by ``.ts`` and ARFF."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.guard import guarded
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet

#: A table of all channels at all times may be this much larger than the values that fill it, beyond ten million cells.
MOST_CELLS_PER_VALUE = 256
CELLS_ALLOWED_ANYWAY = 10_000_000
#: Parts of a set's schema that the formats have no place for.
SCHEMA_FACTS = ("channels", "units", "dates", "time_unit")
_ONE_COLUMN = {"value": pl.Float64}


def _parse_numbers(text: bytes, count: int) -> Float64[np.ndarray, " count"] | None:
    """That many finite numbers or NaN, separated by commas; None if the text is anything else."""
    try:
        values = guarded(
            lambda: pl.read_csv(text, has_header=False, eol_char=",", separator=";", schema=_ONE_COLUMN), None
        )
    except DataError:
        return None
    column = values.to_series()
    if len(column) != count or column.null_count() or column.is_infinite().any():
        return None
    return column.to_numpy(writable=True)


def parse_cases(bodies: list[bytes]) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " cases"], int] | None:
    """Numbers of all cases, dimensions separated by ``:``; None unless the dimensions of each are of one length.

    Returns:
        The values case by case and dimension by dimension; the length of each case; the number of dimensions.
    """
    text = b"\n".join(bodies)
    marks = text.translate(None, b"0123456789+-.eE")
    if b"?" in marks:
        if b"-?" in text or b"+?" in text:
            return None
        text = text.replace(b"?", b"nan")
    marks = marks.translate(None, b"?nNaA \t\r")
    if marks.translate(None, b",:\n"):
        return None
    codes = np.frombuffer(marks, np.uint8)
    ends = np.append(np.flatnonzero(codes != ord(",")), len(codes))
    lengths = np.diff(ends, prepend=-1)
    channels, over = divmod(len(lengths), len(bodies))
    if over or np.any(codes[ends[channels - 1 : -1 : channels]] != ord("\n")):
        return None
    by_case = lengths.reshape(len(bodies), channels)
    if np.any(by_case != by_case[:, :1]):
        return None
    values = _parse_numbers(text.replace(b":", b",").replace(b"\n", b","), int(lengths.sum()))
    return None if values is None else (values, by_case[:, 0], channels)


def regular_arrays(
    values: Float64[np.ndarray, " n"], lengths: Int64[np.ndarray, " cases"], channels: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Times 0, 1, ... [L] and values [L, C] of each case, from the values case by case and channel by channel."""
    cases, length = len(lengths), int(lengths[0])
    if np.all(lengths == length):
        clocks = np.tile(np.arange(length, dtype=np.float64), (cases, 1))
        return list(zip(clocks, values.reshape(cases, channels, length).transpose(0, 2, 1), strict=True))
    ends = np.cumsum(lengths)
    clock = (np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)).astype(np.float64)
    return [
        (clock[end - length : end], values[(end - length) * channels : end * channels].reshape(channels, length).T)
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]


def nearest(text: str, classes: Sequence[str]) -> str:
    """A remedy for an unknown class that takes no time to speak of, however many there are."""
    return did_you_mean(text[:100], classes) if len(classes) < 1000 else f"see the {len(classes)} classes in the header"


def plain_float(text: str) -> float:
    """A float as files have it: Python's own also takes ``1_0`` and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def number(text: str, column: str) -> float:
    """A finite number, or NaN for ``?`` and ``NaN``."""
    if text == "?":
        return np.nan
    try:
        value = plain_float(text)
    except ValueError:
        shown = f"{shortened(text)} is not a number" if text else "there is nothing between two separators"
        raise DataError(shown, column=column, remedy="write ? for a missing value") from None
    if np.isinf(value):
        raise DataError(f"{shortened(text)} is infinite", column=column, remedy="write ? for a missing value")
    return value


def merged(
    case: Int64[np.ndarray, " n"],
    channel: Int64[np.ndarray, " n"],
    times: Float64[np.ndarray, " n"],
    values: Float64[np.ndarray, " n"],
    cases: int,
    channels: int,
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Times [L] and values [L, C] of each case, from single values in any order.

    The times of a case are the union of those of its channels. Where a channel has several values at one time, its k-th
    meets the k-th of the others.
    """
    order = np.lexsort((times, channel, case))
    case, channel, times, values = case[order], channel[order], times[order], values[order]
    place = np.arange(len(times))
    nth = place - np.maximum.accumulate(np.where(_starts(case, channel, times), place, 0))
    order = np.lexsort((nth, times, case))
    case, channel, times, values, nth = case[order], channel[order], times[order], values[order], nth[order]
    first = _starts(case, times, nth)
    rows = int(first.sum())
    if rows * channels > CELLS_ALLOWED_ANYWAY + MOST_CELLS_PER_VALUE * len(values):
        raise DataError(
            f"{len(values)} values would become a table of {rows} times and {channels} channels",
            remedy="leave out channels, or cases, or bring the times of the channels together",
        )
    table = np.full((rows, channels), np.nan)
    table[np.cumsum(first) - 1, channel] = values
    stamps = times[first]
    bounds = np.searchsorted(case[first], np.arange(cases + 1)).tolist()
    return [(stamps[a:b], table[a:b]) for a, b in pairwise(bounds)]


def _starts(*keys: NDArray[Any]) -> NDArray[np.bool_]:
    """True where any of the keys differs from the one before."""
    changed = np.ones(len(keys[0]), np.bool_)
    changed[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return changed


def assembled(
    arrays: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    labels: Sequence[Label] | None,
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    notes: dict[str, int],
    channels: int,
) -> SeriesSet:
    """The set, with names of channels and ids as in the facts where there are some."""
    ids = facts.get("ids", range(len(arrays)))
    schema = Schema(
        **{"channels": numbered(channels)} | {k: v for k, v in facts.items() if k in SCHEMA_FACTS}, classes=classes
    )
    for name, given, there in (("ids", len(ids), len(arrays)), ("channels", len(schema.channels), channels)):
        if given != there:
            raise DataError(
                f"the comment of contiformer has {given} {name}, the data have {there}", remedy="remove the comment"
            )
    each: Sequence[Label | None] = labels or [None] * len(arrays)
    series = [
        Series(times, values, None, label, None, None, name)
        for (times, values), label, name in zip(arrays, each, ids, strict=True)
    ]
    return SeriesSet(series, schema=schema, notes=notes)


def numbered(channels: int) -> tuple[str, ...]:
    """The names of channels that have none."""
    return tuple(f"channel_{n}" for n in range(channels))


def shortened(text: str) -> str:
    """For messages."""
    return repr(text if len(text) <= 40 else f"{text[:30]}...")

"""Conversion of user input to arrays: times in float64, matrices with NaN where nothing was observed.

Numeric times stay what they are. Datetimes become seconds since 1970-01-01 in UTC, to the microsecond, which float64
holds exactly until the year 2255; durations become seconds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contiformer.data.errors import DataError

#: Kinds of times, which are never mixed: a model of one of them is not asked in another.
TimeKind = Literal["numbers", "dates", "dates with a time zone", "durations"]
#: The kinds that are seconds since 1970.
DATES: tuple[TimeKind, ...] = ("dates", "dates with a time zone")
ZONED: TimeKind = "dates with a time zone"
_MICROSECONDS = 1e6
#: Seconds beyond which microseconds do not fit into 64 bits.
FARTHEST = 9.2e12


def as_times(times: ArrayLike, name: str = "times") -> NDArray[np.float64]:
    """[L] float64 from real numbers, datetimes (with a zone all or none of them), dates or durations.

    Example:
        >>> import datetime as dt
        >>> from contiformer.data import as_times
        >>> as_times([dt.datetime(1970, 1, 1, 0, 1), dt.datetime(1970, 1, 2)]).tolist()
        [60.0, 86400.0]
    """
    try:
        array = np.asarray(times)
    except ValueError:
        raise DataError(f"{name} are ragged", remedy="pass one time per row, a flat list") from None
    if array.dtype.kind == "c":
        raise DataError(f"{name} are complex numbers", remedy="pass real ones")
    if array.ndim == 0 or array.ndim > 1:
        raise DataError(f"{name} have shape {array.shape}", remedy="pass one time per row, a flat list")
    if array.dtype.kind in "mM":
        stamps = _from_stamps(array, name)
    elif array.dtype.kind == "O" and len(array) and all(isinstance(t, dt.date | dt.timedelta) for t in array):
        stamps = _from_objects(array, name)
    else:
        try:
            stamps = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            bad = next((i for i, t in enumerate(array) if not _is_number(t)), 0)
            problem = f"{name}: {array[bad]!r} (position {bad}) is neither a number nor a datetime"
            raise DataError(problem, remedy="convert the times first, for example with pandas.to_datetime") from None
    finite = np.isfinite(stamps)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise DataError(f"{name}: {array[bad]!r} (position {bad}) is not a finite time", remedy="remove or repair it")
    return stamps


def time_kind(times: Any) -> TimeKind:
    """The kind of some times, by the first of them."""
    some = next(iter(times), None)
    if isinstance(some, dt.datetime) and some.tzinfo is not None:
        return ZONED
    if isinstance(some, dt.date | np.datetime64):
        return "dates"
    return "durations" if isinstance(some, dt.timedelta | np.timedelta64 | dt.time) else "numbers"


def only_kind(kinds: Mapping[TimeKind, int]) -> TimeKind | None:
    """The kind of the times in a list, from the kinds that are there with an item of each; two are refused."""
    if len(kinds) > 1:
        (first, a), (second, b) = list(kinds.items())[:2]
        problem = f"the times of series {a} are {first}, those of series {b} {second}"
        raise DataError(problem, remedy="use one kind of times")
    return next(iter(kinds), None)


def refuse_other_kind(given: TimeKind | None, wanted: TimeKind, what: str = "the times of X are") -> None:
    """Refuse times of another kind than those of the training; None: the kind is unknown, and not checked.

    Without that, numbers asked of a model of dates would be answered for 1970, and local times taken for UTC.
    """
    if given is None or given == wanted:
        return
    remedy = "give the same kind"
    if given in DATES and wanted in DATES:
        zone = "the zone that they are in" if given == "dates" else "no zone, on the clock of the training data"
        remedy = f"give them {zone}, for example with tz_localize and tz_convert of pandas"
    elif "durations" in (given, wanted):
        remedy += ": durations and hh:mm are not numbers, which might be hours or seconds"
    raise DataError(f"{what} {given}; the model was trained on {wanted}", remedy=remedy)


def shown_times(times: NDArray[np.float64], kind: TimeKind) -> NDArray[Any]:
    """Times as they were given: numbers, durations, or dates, those with a zone in UTC; NaT where one never comes."""
    if kind == "numbers":
        return times
    never = ~(np.abs(times) <= FARTHEST)
    unit = "timedelta64[us]" if kind == "durations" else "datetime64[us]"
    shown = np.round(np.where(never, 0.0, times) * _MICROSECONDS).astype(np.int64).astype(unit)
    shown[never] = "NaT"
    if kind != ZONED:
        return shown
    return np.array([None if t is None else t.replace(tzinfo=dt.UTC) for t in shown.tolist()], object)


def as_clock(duration: dt.timedelta) -> str:
    """A duration as text, hh:mm:ss, as it is read.

    Example:
        >>> import datetime as dt
        >>> from contiformer.data.conversion import as_clock
        >>> as_clock(dt.timedelta(hours=30, seconds=1.5))
        '30:00:01.500000'
    """
    s = duration.total_seconds()
    return f"{int(s // 3600):02d}:{int(s // 60 % 60):02d}:{s % 60:09.6f}".removesuffix(".000000")


def as_datetimes(times: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Seconds since 1970 back to datetimes in UTC, to the microsecond."""
    if np.abs(times).max(initial=0.0) > FARTHEST:
        raise DataError("a time is too far from 1970 to be a date", remedy="give seconds since 1970")
    return np.round(times * _MICROSECONDS).astype(np.int64).astype("datetime64[us]")


def _from_stamps(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    missing = np.isnat(array)
    unit = "datetime64[us]" if array.dtype.kind == "M" else "timedelta64[us]"
    coarse = np.datetime_data(array.dtype)[0] in {"Y", "M", "W", "D", "h", "m", "s", "ms"}
    if coarse and not np.array_equal(array.astype(unit).astype(array.dtype)[~missing], array[~missing]):
        raise DataError(f"{name}: a date is too far from 1970", remedy="repair it")
    seconds = array.astype(unit).astype(np.int64) / _MICROSECONDS
    return np.where(missing, np.nan, seconds)


def _from_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    zoned = [isinstance(t, dt.datetime) and t.tzinfo is not None for t in array]
    if any(zoned) and not all(zoned):
        bad = zoned.index(not zoned[0])
        zone = f"{'has' if zoned[bad] else 'has no'} time zone"
        problem = f"{name}: {array[bad]} (position {bad}) {zone}, unlike those before"
        raise DataError(problem, remedy="give all of them a zone, or none")
    if len({isinstance(t, dt.timedelta) for t in array}) > 1:
        raise DataError(f"{name} mix dates and durations", remedy="use one of them")
    try:
        # NaT of pandas is a datetime, too
        known: list[Any] = [None if type(t).__name__ == "NaTType" else t for t in array]
        naive = [t.astimezone(dt.UTC).replace(tzinfo=None) if z else t for t, z in zip(known, zoned, strict=True)]
    except OverflowError:
        raise DataError(f"{name}: a date is outside the years 1 to 9999 in UTC", remedy="repair it") from None
    kind = "timedelta64[us]" if isinstance(array[0], dt.timedelta) else "datetime64[us]"
    return _from_stamps(np.array(naive, dtype=kind), name)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def sort_order(times: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The stable sorting permutation of the times; None where they are sorted."""
    return None if bool(np.all(times[1:] >= times[:-1])) else np.argsort(times, kind="stable")


def taken(array: NDArray[Any], order: NDArray[np.int64] | None) -> NDArray[Any]:
    """The array in that order; None: as it is."""
    return array if order is None else array[order]


def same(a: object, b: object) -> bool:
    """Equal, with NaN equal to NaN."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def as_matrix(values: ArrayLike, name: str) -> NDArray[np.floating[Any]]:
    """[L, C] in float32 or float64, NaN where not observed."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cmM":
            raise TypeError(f"of type {array.dtype}")
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"{name} are not numbers in equal rows ({error})"
        raise DataError(problem, remedy="pass an array [L, C] with NaN where missing") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise DataError(f"{name} have shape {array.shape}", remedy="pass [L, C], one row per time")
    if np.isinf(array).any():
        row, column = np.argwhere(np.isinf(array))[0]
        problem = f"{name} are infinite in row {row} (from 0), channel {column}"
        raise DataError(problem, remedy="use NaN for what was not observed")
    return array


def plain(value: Any) -> Any:
    """A numpy scalar as Python's own type."""
    return value.item() if isinstance(value, np.generic) else value

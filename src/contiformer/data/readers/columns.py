"""Columns of a table as arrays, with errors that name file, row and column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.conversion import ZONED, TimeKind
from contiformer.data.errors import DataError, PathText, did_you_mean, shortened

T = TypeVar("T")
#: Words for "not observed" in columns of text.
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")

_TRUTH = {"true": 1.0, "false": 0.0}
_CLOCK = r"^(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?$"
_ZONE = r"\d:\d\d.*(Z|[+-]\d\d:?\d\d)$"
_NAIVE = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_ZONED = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z")


@dataclass(frozen=True)
class Place:
    """Location of a table, for errors: its file, and the number of its first data row there."""

    file: PathText | None = None
    first_row: int = 1

    def error(
        self, problem: str, *, at: int | None = None, column: str | None = None, remedy: str | None = None
    ) -> DataError:
        """An error at position ``at`` (from 0) of a column."""
        file, row = (self.file, None) if at is None else self.of_row(at)
        return DataError(problem, file=file, row=row, column=column, remedy=remedy)

    def of_row(self, at: int) -> tuple[PathText | None, int]:
        """File and row number of position ``at`` (from 0)."""
        return self.file, at + self.first_row

    def refuse(self, bad: NDArray[np.bool_], problem: str, column: str, remedy: str) -> None:
        """Raise an error for the first row of a column that is bad."""
        if bad.any():
            raise self.error(problem, at=first(bad), column=column, remedy=remedy)


def first(mask: NDArray[np.bool_]) -> int:
    """Position of the first True."""
    return int(np.argmax(mask))


def guarded(read: Callable[[], T], file: PathText | None) -> T:
    """Call ``read``; errors of polars, panics on damaged bytes included, become a DataError."""
    try:
        return read()
    except (MemoryError, DataError):
        raise
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"cannot be read: {_short(error)}", file=file) from None
    except BaseException as error:
        # a panic in polars is not an Exception, so that nobody catches it by accident
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(f"cannot be read: {_short(error)}", file=file, remedy="the file is damaged") from None


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def as_polars(frame: Any) -> pl.DataFrame:
    """A polars frame from one of polars or pandas, an Arrow table, or a dict of columns."""
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        if isinstance(frame, pl.LazyFrame):
            return frame.collect()
        if type(frame).__module__.split(".")[0] == "pandas":
            if not frame.columns.is_unique:
                raise DataError("two columns have the same name", remedy="rename one of them")
            return pl.DataFrame([_from_pandas(frame[name], str(name)) for name in frame.columns])
        if type(frame).__module__.split(".")[0] == "pyarrow":
            return pl.DataFrame(pl.from_arrow(frame))
        if isinstance(frame, dict):
            for name, column in frame.items():
                if isinstance(column, list | tuple):
                    _refuse_mixed_zones(column, str(name))
            return pl.DataFrame(frame)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"the table cannot be read ({error})", remedy="give every column one type") from None
    raise DataError(f"a {type(frame).__name__} is not a table", remedy="pass a DataFrame of pandas or polars")


def _from_pandas(column: Any, name: str) -> pl.Series:
    """Without pyarrow, which polars' own conversion asks for."""
    if getattr(column.dtype, "tz", None) is not None:
        naive = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("M8[us]")
        return pl.Series(name, naive).dt.replace_time_zone("UTC")
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "mM":
        return pl.Series(name, column.to_numpy().astype(f"{column.dtype.kind}8[us]"))
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return pl.Series(name, column.to_numpy())
    missing = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column.tolist(), missing, strict=True)]
    if any(isinstance(value, dt.datetime) for value in values):
        _refuse_mixed_zones(values, name)
    try:
        return pl.Series(name, values)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if value is None else str(value) for value in values])


def _refuse_mixed_zones(values: Iterable[Any], name: str) -> None:
    zoned = [(at, v.tzinfo is not None) for at, v in enumerate(values) if isinstance(v, dt.datetime)]
    odd = [at for at, has in zoned if has != zoned[0][1]] if zoned else []
    if odd:
        raise _mixed_zones(Place(), odd[0], name)


def _mixed_zones(place: Place, at: int, name: str) -> DataError:
    problem = "some times have a zone and some do not"
    return place.error(problem, at=at, column=name, remedy="convert all of them to UTC first")


def pick(frame: pl.DataFrame, name: str, place: Place) -> pl.Series:
    """A column by its name."""
    if name not in frame.columns:
        raise place.error(f"there is no column {name!r}", remedy=did_you_mean(name, frame.columns))
    return frame[name]


def words(column: pl.Series, place: Place, *, labels: bool = False) -> pl.Series:
    """A column of names or classes: whole numbers as they are, anything else as text; nothing is missing.

    Numbers with a fraction stay numbers, missing ones (NaN) count as missing. Labels may be missing, or true and false.
    """
    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise place.error(f"holds {kind}, not words or numbers", column=column.name, remedy="convert it")
    if kind.is_float():
        column = column.fill_nan(None)
    if labels and kind in (pl.Boolean, pl.Null):
        return column
    if not labels and column.null_count():
        place.refuse(column.is_null().to_numpy(), "is missing", column.name, "fill it in or remove the row")
    if kind == pl.Boolean:
        return column.cast(pl.Int64)
    return column if kind.is_numeric() else column.cast(pl.String)


def numbers(column: pl.Series, place: Place, remedy: str = "leave it empty if unknown") -> NDArray[np.floating[Any]]:
    """float32 as it is, everything else as float64, true and false as 1 and 0; NaN where missing."""
    name = column.name
    if column.dtype == pl.String:
        words = column.str.strip_chars()
        words = words.set(words.is_in(list(MISSING)), None)
        parsed = words.cast(pl.Float64, strict=False)
        truth = words.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Float64)
        parsed = truth if truth.null_count() == words.null_count() else parsed
        bad = (parsed.is_null() & words.is_not_null()).to_numpy()
        if bad.any():
            at = first(bad)
            raise place.error(f"{shortened(column[at])} is not a number", at=at, column=name, remedy=remedy)
        column = parsed
    elif not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        raise place.error(f"holds {column.dtype}, not numbers", column=name, remedy="convert it, or name other columns")
    kind = pl.Float32 if column.dtype == pl.Float32 else pl.Float64
    column = column.cast(kind)
    array = (column.fill_null(float("nan")) if column.null_count() else column).to_numpy()
    place.refuse(np.isinf(array), "is infinite", name, "leave it empty if unknown")
    return array


def times(column: pl.Series, place: Place) -> tuple[NDArray[np.float64], TimeKind]:
    """Numbers as they are, dates as seconds since 1970 in UTC, durations and clock times (hh:mm) as seconds; the kind.

    Dates without a time zone count as UTC.
    """
    name, kind = column.name, column.dtype
    if column.null_count():
        place.refuse(column.is_null().to_numpy(), "the time is missing", name, "remove the row or fill it in")
    found: TimeKind = "numbers"
    if kind in (pl.Categorical, pl.Enum):
        column, kind = column.cast(pl.String), pl.String()
    if kind == pl.String:
        array, found = _from_text(column, place)
    elif kind.is_temporal():
        found = _kind_of(kind)
        array = _microseconds(column) / 1e6
    elif kind.is_numeric():
        array = column.cast(pl.Float64).to_numpy()
    else:
        raise place.error(f"holds {kind}, not times", column=name, remedy="pass numbers or dates")
    place.refuse(~np.isfinite(array), "the time is not finite", name, "remove or repair the row")
    return array, found


def _kind_of(kind: pl.DataType) -> TimeKind:
    if isinstance(kind, pl.Duration | pl.Time):
        return "durations"
    return ZONED if getattr(kind, "time_zone", None) is not None else "dates"


def _microseconds(column: pl.Series) -> NDArray[np.float64]:
    if column.dtype == pl.Time:
        return column.cast(pl.Int64).to_numpy() / 1e3
    if isinstance(column.dtype, pl.Duration):
        return column.dt.total_microseconds().to_numpy().astype(np.float64)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy().astype(np.float64)


def _from_text(column: pl.Series, place: Place) -> tuple[NDArray[np.float64], TimeKind]:
    words = column.str.strip_chars()
    plain = words.cast(pl.Float64, strict=False)
    if plain.null_count() == 0:
        return plain.to_numpy(), "numbers"
    clock = words.str.contains(_CLOCK)
    if clock.all():
        parts = words.str.extract_groups(_CLOCK).struct.unnest().cast(pl.Float64).fill_null(0.0)
        hours, minutes, seconds = (parts.to_series(i).to_numpy() for i in range(3))
        return 3600 * hours + 60 * minutes + seconds, "durations"
    stamps = _from_dates(words, column.name, place)
    if stamps.null_count() == 0:
        return _microseconds(stamps) / 1e6, _kind_of(stamps.dtype)
    # whichever reading fits most rows is the one that was meant
    unread = max((plain.is_null(), ~clock, stamps.is_null()), key=lambda missed: -int(missed.sum()))
    at = first(unread.to_numpy())
    problem = f"{shortened(column[at])} is not a time, or not of the same kind as the others"
    remedy = "give numbers, hh:mm, or dates like 2024-01-31T12:00:00"
    raise place.error(problem, at=at, column=column.name, remedy=remedy)


def _from_dates(words: pl.Series, name: str, place: Place) -> pl.Series:
    """Datetimes in UTC, null where a word is none."""
    zoned = words.str.contains(_ZONE).to_numpy()
    if zoned.any() and not zoned.all():
        dated = words.str.contains(r"^\d+-\d\d-\d\d").to_numpy()
        if dated.all():
            raise _mixed_zones(place, first(zoned != zoned[0]), name)
    iso = words.str.replace(r"^(\S+) +", "${1}T").str.replace(r"Z$", "+0000").str.replace(r"([+-]\d\d):(\d\d)$", "$1$2")
    stamps = pl.Series(name, [None] * len(iso), dtype=pl.Datetime("us", "UTC" if zoned.any() else None))
    for form in _ZONED if zoned.any() else _NAIVE:
        text = iso.set(stamps.is_not_null(), None)
        more = text.str.to_datetime(form, time_unit="us", strict=False).cast(stamps.dtype)
        stamps = pl.select(pl.coalesce(stamps, more)).to_series().alias(name)
    return stamps

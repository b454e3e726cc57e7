"""Forecasting sets: long regular series, with the borders and windows of published results."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from contiformer.data.catalog.registry import dataset_info
from contiformer.data.catalog.storage import require_file
from contiformer.data.collection import LazyItems
from contiformer.data.errors import DataError
from contiformer.data.files import read_text
from contiformer.data.readers.columns import guarded
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

PARTS = ("train", "val", "test")
#: Input length and horizons in the paper's tables; ETTh1 and ETTm1 are not in them and are taken like their twins.
PAPER_LENGTHS: dict[str, tuple[int, tuple[int, ...]]] = {
    **dict.fromkeys(("ETTh1", "ETTh2", "ETTm1", "ETTm2"), (96, (24, 48, 168, 336))),
    **dict.fromkeys(("Exchange", "Weather"), (96, (96, 192, 336, 540))),
    "ILI": (36, (24, 36, 48, 60)),
}
_DAY = 86400.0
_BROKEN = -9999.0
_DATE_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M")


def load_forecasting(name: str) -> SeriesSet:
    """A set of one series: all rows of the file, in their order, with dates.

    Exchange is also read from the undated file by Lai et al.: its last two columns are swapped to the order of the
    dated file, and its rows are the days from 1990-01-01 on.
    """
    info = dataset_info(name, "forecasting")
    path = require_file(info, *(form.files[0] for form in info.forms))
    if path.name.startswith("exchange_rate.txt"):
        times, values, channels = _undated_exchange(path)
    else:
        times, values, channels = _dated(path)
    if len(times) < 2:
        raise DataError("there are fewer than two rows", file=path, remedy="download it again")
    steps = np.diff(times)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0)) + 3
        raise DataError("the dates go back", file=path, row=row, column="date", remedy="download it again")
    notes = {
        f"values {_BROKEN:g} of broken sensors, left as they are": int((values == _BROKEN).sum()),
        "steps between rows that are not the usual one": int((steps != np.median(steps)).sum()),
    }
    series = Series.of(times, values, id=info.name)
    return SeriesSet([series], schema=Schema(channels=channels, dates=True, time_unit="s"), notes=notes)


def borders(name: str, *, input_length: int = 0, rows: int | None = None) -> dict[str, tuple[int, int]]:
    """Rows ``[start, end)`` of train, val and test.

    ETT: 12, 4 and 4 months of 30 days, and what follows is not used. The others: 70 % train and 20 % test, both rounded
    down, and val between. Val and test begin ``input_length`` rows earlier, so that their first forecast is for the
    first row after the part before.

    ``rows`` is the length of the series, by default that of the published file.

    Example:
        >>> from contiformer.data.catalog import borders
        >>> borders("ETTh2", input_length=96)
        {'train': (0, 8640), 'val': (8544, 11520), 'test': (11424, 14400)}
    """
    info = dataset_info(name, "forecasting")
    if input_length < 0:
        raise DataError(f"input_length must not be negative, got {input_length}")
    count = int(info.sizes["rows"]) if rows is None else rows
    if info.name.startswith("ETT"):
        month = 30 * 24 * (4 if info.name.startswith("ETTm") else 1)
        ends = (12 * month, 16 * month, 20 * month)
    else:
        train, test = int(count * 0.7), int(count * 0.2)
        ends = (train, count - test, count)
    starts = (0, ends[0] - input_length, ends[1] - input_length)
    if min(starts) < 0 or ends[-1] > count:
        problem = f"{info.name} with {count} rows cannot be split for inputs of {input_length}"
        raise DataError(problem, remedy="use shorter inputs")
    return dict(zip(PARTS, zip(starts, ends, strict=True), strict=True))


def windows(data: SeriesSet, part: str, input_length: int, horizon: int) -> SeriesSet:
    """Every window of a part: ``input_length`` rows to see, and the ``horizon`` rows after them as the target.

    A part with n rows has ``n - input_length - horizon + 1`` of them, one starting at each row. They are views, made on
    access; the id of a window is the row it starts at. ``data`` is from :func:`load_forecasting`, also after scaling;
    the parts are ``train``, ``val`` and ``test``.
    """
    if len(data) != 1 or not isinstance(data[0].id, str):
        problem = "windows are taken from one series with the name of its set"
        raise DataError(problem, remedy="pass load_forecasting(...)")
    if part not in PARTS:
        raise DataError(f"there is no part {part!r}", remedy=f"pass one of {', '.join(PARTS)}")
    if input_length < 1 or horizon < 1:
        raise DataError(f"input_length and horizon must be 1 or more, got {input_length} and {horizon}")
    series = data[0]
    start, end = borders(str(series.id), input_length=input_length, rows=len(series))[part]
    count = end - start - input_length - horizon + 1
    if count < 1:
        problem = f"{part} of {series.id} has {end - start} rows, and a window {input_length + horizon}"
        raise DataError(problem, remedy="use a shorter input or horizon")
    schema = Schema(**{**vars(data.schema), "targets": data.channels})
    make = partial(_window, series, start, input_length, horizon)
    return SeriesSet(LazyItems(np.full(count, input_length, np.int64), make), schema=schema, notes=data.notes)


def _window(series: Series, start: int, input_length: int, horizon: int, index: int) -> Series:
    first = start + index
    middle = first + input_length
    seen, wanted = series.points(slice(first, middle)), series.points(slice(middle, middle + horizon))
    return Series(seen.times, seen.values, target_times=wanted.times, target_values=wanted.values, id=first)


_Columns = tuple[np.ndarray, np.ndarray, tuple[str, ...]]


def _table(path: Path, has_header: bool) -> pl.DataFrame:
    data = read_text(path, "latin-1").encode()
    return guarded(lambda: pl.read_csv(data, has_header=has_header, infer_schema_length=0), path)


def _numbers(frame: pl.DataFrame, path: Path, rows_before: int) -> np.ndarray:
    numbers = frame.cast(pl.Float64, strict=False)
    for column in numbers.iter_columns():
        bad = (column.is_null() | ~column.is_finite().fill_null(False)).arg_true()
        if len(bad):
            row = int(bad[0])
            problem = f"{frame[column.name][row]!r} is not a number"
            remedy = "download it again"
            raise DataError(problem, file=path, row=row + 1 + rows_before, column=column.name, remedy=remedy)
    return numbers.to_numpy()


def _dated(path: Path) -> _Columns:
    frame = _table(path, has_header=True)
    if frame.columns[0] != "date" or frame.width < 2:
        raise DataError("the first column has to be 'date', and others have to follow", file=path, row=1)
    readings = [frame["date"].str.to_datetime(form, strict=False, time_unit="us") for form in _DATE_FORMATS]
    dates = min(readings, key=pl.Series.null_count)
    if dates.null_count():
        row = int(dates.is_null().arg_true()[0])
        raise DataError(f"{frame['date'][row]!r} is not a date", file=path, row=row + 2, column="date")
    times = dates.to_numpy().astype(np.int64) / 1e6
    return times, _numbers(frame.drop("date"), path, rows_before=1), tuple(frame.columns[1:])


def _undated_exchange(path: Path) -> _Columns:
    frame = _table(path, has_header=False)
    if frame.width != 8:
        raise DataError(f"expected 8 columns, not {frame.width}", file=path, row=1)
    values = _numbers(frame, path, rows_before=0)[:, [0, 1, 2, 3, 4, 5, 7, 6]]
    first = np.datetime64("1990-01-01", "s").astype(np.int64)
    return first + _DAY * np.arange(len(values)), values, ("0", "1", "2", "3", "4", "5", "6", "OT")

"""Long regular series to forecast, with the borders and windows that published results use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from contiformer.data.catalog import registry, store
from contiformer.data.catalog.info import DatasetInfo
from contiformer.data.errors import DataError
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.text import read_text
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

PARTS = ("train", "val", "test")
#: Input length and horizons in the paper's tables; ETTh1 and ETTm1 are not in them and are taken like their twins.
PAPER_LENGTHS: dict[str, tuple[int, tuple[int, ...]]] = {
    "ETTh1": (96, (24, 48, 168, 336)),
    "ETTh2": (96, (24, 48, 168, 336)),
    "ETTm1": (96, (24, 48, 168, 336)),
    "ETTm2": (96, (24, 48, 168, 336)),
    "Exchange": (96, (96, 192, 336, 540)),
    "Weather": (96, (96, 192, 336, 540)),
    "ILI": (36, (24, 36, 48, 60)),
}
_DAY = 86400.0
_BROKEN = -9999.0
_DATE_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M")


def load_forecasting(name: str) -> SeriesSet:
    """A set of one series: all rows of the file, in their order, with dates.

    Exchange is also read from the file without dates by Lai et al.: its last two columns are swapped to the order of
    the dated file, and its rows are the days from 1990-01-01 on, as there.

    Example:
        >>> load_forecasting("ILI")[0].values.shape  # doctest: +SKIP
        (966, 7)
    """
    info = registry.get(name, "forecasting")
    path = store.require(info, *(form.files[0] for form in info.forms))
    if path.name.startswith("exchange_rate.txt"):
        times, values, channels = _undated_exchange(path)
    else:
        times, values, channels = _dated(path)
    if len(times) < 2:
        raise DataError("there are fewer than two rows", file=path, remedy="download it again")
    notes = {}
    broken = int((values == _BROKEN).sum())
    if broken:
        notes[f"values {_BROKEN:g} of broken sensors, left as they are"] = broken
    steps = np.diff(times)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0)) + 3
        raise DataError("the dates go back", file=path, row=row, column="date", remedy="download it again")
    uneven = int((steps != np.median(steps)).sum())
    if uneven:
        notes["steps between rows that are not the usual one"] = uneven
    series = Series.of(times, values, id=info.name)
    return SeriesSet([series], schema=Schema(channels=channels, dates=True, time_unit="s"), notes=notes)


def borders(name: str, *, input_length: int = 0, rows: int | None = None) -> dict[str, tuple[int, int]]:
    """Rows ``[start, end)`` of train, val and test.

    ETT: 12, 4 and 4 months of 30 days, and what follows is not used. The others: 70 % train and 20 % test, both rounded
    down, and val between. Val and test begin ``input_length`` rows earlier, so that their first forecast is for the
    first row after the part before.

    Args:
        name: of the set.
        input_length: rows a model sees.
        rows: of the series; those of the published file by default.

    Example:
        >>> borders("ETTh2", input_length=96)
        {'train': (0, 8640), 'val': (8544, 11520), 'test': (11424, 14400)}
    """
    info = registry.get(name, "forecasting")
    if input_length < 0:
        raise DataError(f"an input of {input_length} rows is not possible", remedy="pass a positive length")
    count = _published_rows(info) if rows is None else rows
    if info.name.startswith("ETT"):
        month = 30 * 24 * (4 if info.name.startswith("ETTm") else 1)
        ends = (12 * month, 16 * month, 20 * month)
    else:
        train, test = int(count * 0.7), int(count * 0.2)
        ends = (train, count - test, count)
    starts = (0, ends[0] - input_length, ends[1] - input_length)
    if min(starts) < 0 or ends[-1] > count:
        raise DataError(
            f"{info.name} with {count} rows cannot be split for inputs of {input_length}", remedy="use shorter inputs"
        )
    return dict(zip(PARTS, zip(starts, ends, strict=True), strict=True))


def windows(data: SeriesSet, part: str, input_length: int, horizon: int) -> SeriesSet:
    """Every window of a part: ``input_length`` rows to see, and the ``horizon`` rows after them as the target.

    A part with n rows has ``n - input_length - horizon + 1`` of them, one starting at each row; none is left out. They
    are views, made when asked for.

    Args:
        data: from :func:`load_forecasting`, also after scaling.
        part: ``train``, ``val`` or ``test``.
        input_length: rows to see.
        horizon: rows to forecast.

    Returns:
        A lazy set; the id of a window is the row it starts at.
    """
    if len(data) != 1 or not isinstance(data[0].id, str):
        raise DataError(
            "windows are taken from one series with the name of its set", remedy="pass load_forecasting(...)"
        )
    if part not in PARTS:
        raise DataError(f"there is no part {part!r}", remedy=f"pass one of {', '.join(PARTS)}")
    if input_length < 1 or horizon < 1:
        raise DataError(
            f"{input_length} rows to see and {horizon} to forecast are not possible", remedy="pass 1 or more"
        )
    series = data[0]
    start, end = borders(str(series.id), input_length=input_length, rows=len(series))[part]
    count = end - start - input_length - horizon + 1
    if count < 1:
        raise DataError(
            f"{part} of {series.id} has {end - start} rows, and a window {input_length + horizon}",
            remedy="use a shorter input or horizon",
        )
    schema = Schema(**{**vars(data.schema), "targets": data.channels})
    return SeriesSet(_Windows(series, start, count, input_length, horizon), schema=schema, notes=data.notes)


@dataclass
class _Windows:
    series: Series
    start: int
    count: int
    input_length: int
    horizon: int

    def __post_init__(self) -> None:
        self.lengths = np.full(self.count, self.input_length, np.int64)
        self.blocks = np.zeros(self.count, np.int64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Series:
        first = self.start + index
        middle = first + self.input_length
        times, values = self.series.times, self.series.values
        seen, wanted = slice(first, middle), slice(middle, middle + self.horizon)
        return Series(times[seen], values[seen], target_times=times[wanted], target_values=values[wanted], id=first)


def _published_rows(info: DatasetInfo) -> int:
    rows = info.sizes["rows"]
    assert isinstance(rows, int)
    return rows


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
            raise DataError(
                f"{frame[column.name][row]!r} is not a number",
                file=path,
                row=row + 1 + rows_before,
                column=column.name,
                remedy="download it again",
            )
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
    names = tuple(frame.columns[1:])
    return times, _numbers(frame.drop("date"), path, rows_before=1), names


def _undated_exchange(path: Path) -> _Columns:
    frame = _table(path, has_header=False)
    if frame.width != 8:
        raise DataError(f"expected 8 columns, not {frame.width}", file=path, row=1)
    values = _numbers(frame, path, rows_before=0)[:, [0, 1, 2, 3, 4, 5, 7, 6]]
    first = np.datetime64("1990-01-01", "s").astype(np.int64)
    return first + _DAY * np.arange(len(values)), values, ("0", "1", "2", "3", "4", "5", "6", "OT")

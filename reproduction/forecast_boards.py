"""Forecasting PhysioNet 2012 at any time, by two published protocols that have nothing in common but the records.

T (t-PatchGNN, ICML 2024): 24 hours, then every later value of 41 parameters; all 12,000 records by id, 60/20/20 with
``random_state`` 42; values by minimum and maximum of the train and validation part; errors are averaged over each
variable first, then over variables.

P (PyOmniTS, APN): hourly means of 36 variables (35 of them change), standardised over all records, values beyond 5
standard deviations left out; about 36 hours, then the next 3 rows; train, validation and test in the order of the
records; errors are averaged over all values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from contiformer.data import Schema, Series, SeriesSet
from contiformer.data.catalog import dataset_info, find_file, load_clinical, missing_data

Kind = Literal["T", "P"]
Parts = tuple[SeriesSet, SeriesSet, SeriesSet]
HISTORY_T = 24.0
#: Hours to go by, less half an hour, as in the published code; rows to forecast.
HISTORY_P, ROWS_P = 35.5, 3
LIMIT_P = 5.0
_DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")


@lru_cache(maxsize=1)
def forecast_parts(kind: Kind) -> Parts:
    """Train, validation and test part of a protocol, in its units; inputs are values before, targets those after."""
    return _parts_t() if kind == "T" else _parts_p()


def _parts_t() -> Parts:
    sets = [load_clinical(f"PhysioNet2012-{letter}") for letter in "ABC"]
    records = sorted((one for data in sets for one in data), key=lambda one: one.id)
    seen, test = train_test_split(records, train_size=0.8, random_state=42, shuffle=True)
    train, val = train_test_split(seen, train_size=0.75, shuffle=False)
    low, span = _ranges(seen, sets[0].channels.index("Weight"))
    schema = Schema(sets[0].channels, static=sets[0].schema.static, targets=sets[0].channels, time_unit="h")
    return tuple(  # type: ignore[return-value]
        SeriesSet([_cut(one, (one.values - low) / span, HISTORY_T) for one in part], schema=schema)
        for part in (train, val, test)
    )


def _ranges(records: list[Series], weight: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimum and range of each variable. The descriptor Weight counts, -1 where unknown, as in the published code."""
    values = np.concatenate([one.values for one in records])
    static = np.stack([one.static for one in records if one.static is not None])
    first = np.where(np.isnan(static[:, -1]), -1.0, static[:, -1])
    low, high = np.nanmin(values, axis=0).astype(float), np.nanmax(values, axis=0).astype(float)
    low[weight], high[weight] = min(low[weight], first.min()), max(high[weight], first.max())
    return low, np.where(high > low, high - low, 1e-8)


def _cut(one: Series, values: NDArray[Any], start: float) -> Series:
    """A series with the values before ``start``, and the others as its target."""
    ahead = one.times >= start
    past, future = one.times[~ahead], one.times[ahead]
    return Series(past, values[~ahead], one.static, None, future, values[ahead], one.id)


def _parts_p() -> Parts:
    hours = pl.concat([_hourly(letter) for letter in "abc"])
    names = [name for name in hours.columns if name not in ("RecordID", "hour")]
    table = hours.select(names).to_numpy()
    # over all records, the test part too: that is the protocol
    spread = np.nanstd(table, axis=0)
    # a variable that never changes (mechanical ventilation is 1 or not recorded) has no z-score and is left out there
    names, table = [name for name, one in zip(names, spread, strict=True) if one], table[:, spread > 0]
    table = (table - np.nanmean(table, axis=0)) / np.nanstd(table, axis=0)
    table[~(np.abs(table) < LIMIT_P)] = np.nan
    record, hour = hours["RecordID"].to_numpy(), hours["hour"].to_numpy().astype(float)
    last, first = hour.max(), hour.min()
    edges = np.flatnonzero(np.append(True, record[1:] != record[:-1]))
    schema = Schema(tuple(names), targets=tuple(names), time_unit="h")
    series = []
    for start, end in zip(edges, np.append(edges[1:], len(record)), strict=True):
        # the published code scales hours by their range and the border by the last hour + 1
        seen = start + int(((hour[start:end] - first) / (last - first) <= HISTORY_P / (last + 1)).sum())
        after = slice(seen, min(seen + ROWS_P, end))
        one = Series(hour[start:seen], table[start:seen], None, None, hour[after], table[after], int(record[start]))
        series.append(one)
    rest, test = train_test_split(series, test_size=0.1, shuffle=False)
    train, val = train_test_split(rest, test_size=0.1, shuffle=False)
    return SeriesSet(train, schema=schema), SeriesSet(val, schema=schema), SeriesSet(test, schema=schema)


def _hourly(letter: str) -> pl.DataFrame:
    """Hourly means of a set as the published code takes them.

    It reads a record line by line: the line with which a new hour begins closes the hour before and is itself lost,
    and the last hour of a record is never closed. Records of a single hour are left out.
    """
    info = dataset_info("P12")
    file = f"{info.folder}/set-{letter}.csv.gz"
    path = find_file(file)
    if path is None:
        raise missing_data(info, file)
    rows = pl.read_csv(path, schema_overrides={"RecordID": pl.Int64, "Value": pl.Float64}, infer_schema_length=0)
    return hourly_means(rows)


def hourly_means(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns RecordID, hour and one for each of the 36 variables, from rows RecordID, Time, Parameter, Value."""
    others = (*_DESCRIPTORS, "RecordID")
    variables = sorted(name for name in rows["Parameter"].drop_nulls().unique() if name not in others)
    clock = pl.col("Time").str.split(":")
    name = pl.col("Parameter").fill_null("")
    table = rows.with_columns(
        hour=clock.list.first().cast(pl.Int32), minute=clock.list.last().cast(pl.Int32), name=name
    )
    admission = (pl.col("hour") == 0) & (pl.col("minute") == 0)
    table = table.filter((pl.col("name") != "RecordID") & ~(pl.col("name").is_in(_DESCRIPTORS) & admission))
    record, hour, value = (table[one].to_numpy() for one in ("RecordID", "hour", "Value"))
    variable = table["name"].replace_strict(variables, range(len(variables)), default=-1).to_numpy()
    fresh = np.append(True, record[1:] != record[:-1])
    begins = fresh.copy()
    begins[1:] |= hour[1:] != hour[:-1]
    group = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    lost = begins & ~fresh
    counted = (variable >= 0) & ~lost
    cell = group[counted] * len(variables) + variable[counted]
    size = len(heads) * len(variables)
    sums, counts = np.bincount(cell, value[counted], size), np.bincount(cell, minlength=size)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(len(heads), len(variables))
    # the last hour of a record is followed by another record
    closed = np.append(record[heads[1:]] == record[heads[:-1]], False)
    found = {"RecordID": record[heads][closed], "hour": hour[heads][closed]}
    return pl.DataFrame({**found, **{name: means[closed, n] for n, name in enumerate(variables)}})


def per_variable_errors(said: list[NDArray[Any]], test: SeriesSet) -> dict[str, float]:
    """Protocol T: errors of each variable over all its values, then their mean over variables that have any."""
    squares, absolutes, counts = _sums(said, test)
    known = counts > 0
    return {
        "mse": float((squares[known] / counts[known]).mean()),
        "mae": float((absolutes[known] / counts[known]).mean()),
    }


def overall_errors(said: list[NDArray[Any]], test: SeriesSet) -> dict[str, float]:
    """Protocol P: errors over all values."""
    squares, absolutes, counts = _sums(said, test)
    return {"mse": float(squares.sum() / counts.sum()), "mae": float(absolutes.sum() / counts.sum())}


def _sums(said: list[NDArray[Any]], test: SeriesSet) -> tuple[NDArray[np.float64], ...]:
    width = len(test.schema.targets)
    totals = np.zeros((3, width))
    for values, one in zip(said, test, strict=True):
        assert one.target_values is not None
        miss = np.asarray(values, float) - one.target_values
        totals += np.stack([np.nansum(miss**2, axis=0), np.nansum(np.abs(miss), axis=0), (~np.isnan(miss)).sum(0)])
    return totals[0], totals[1], totals[2]


def last_values(test: SeriesSet) -> list[NDArray[np.float64]]:
    """The last value of each channel, or 0 where there is none, carried forward; the simplest forecast."""
    said = []
    for one in test:
        assert one.target_times is not None
        seen = ~np.isnan(one.values)
        place = np.where(seen.any(0), len(one) - 1 - seen[::-1].argmax(0), 0) if len(one) else np.zeros(0, int)
        level = one.values[place, np.arange(one.channels)] if len(one) else np.full(one.channels, np.nan)
        said.append(np.tile(np.nan_to_num(level), (len(one.target_times), 1)))
    return said

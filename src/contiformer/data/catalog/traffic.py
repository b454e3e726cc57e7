"""Jumps of road occupancy as events: the paper's rule on the hourly PeMS file."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int64

from contiformer.data.catalog import registry, store
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.text import read_bytes

UP, DOWN = 0, 1
#: The first hour of the file, which covers 2015 and 2016: 17,544 hours.
START = dt.datetime(2015, 1, 1)
_NOTES = ("events within the pause after another one, removed", "sensor-months with fewer than two events, left out")


def load_traffic(sensors: int | None = None, *, fluctuation: float = 0.5, pause: float = 6.0) -> EventSet:
    """Sequences of jumps up and down, one per sensor and month, in hours from the start of the month.

    Args:
        sensors: only the first so many columns. The paper speaks of 861 sensors in two years but counts 2,585 sequences
            where all of them give about 20,000, so it must have used a part; it does not say which.
        fluctuation: see :func:`events_from_occupancy`.
        pause: the same.
    """
    info = registry.get("Traffic")
    path = store.require(info, f"{info.folder}/traffic.txt.gz")
    data = read_bytes(path)
    occupancy = guarded(
        lambda: pl.read_csv(data, has_header=False, infer_schema_length=0).cast(pl.Float64).to_numpy(), path
    )
    if sensors is not None and not 1 <= sensors <= occupancy.shape[1]:
        raise DataError(f"there are {occupancy.shape[1]} sensors, not {sensors}", file=path)
    try:
        return events_from_occupancy(occupancy[:, :sensors], fluctuation=fluctuation, pause=pause)
    except DataError as error:
        raise error.within(path) from None


def events_from_occupancy(
    occupancy: Float[np.ndarray, "hours sensors"],
    *,
    fluctuation: float = 0.5,
    pause: float = 6.0,
    start: dt.datetime = START,
) -> EventSet:
    """The paper's rule, with what it leaves open decided as follows.

    Hour ``t`` is an event where ``|x[t] - x[t-1]| > fluctuation * x[t-1]``, relative to the hour before; a rise from
    zero is one, however small. Its type is the direction. Going forward in time, an event not later than ``pause``
    hours after the last one that was kept is removed, also across the end of a month. Then sequences are cut at
    calendar months. Those with fewer than two events have nothing to predict: they are left out, and counted.

    Args:
        occupancy: hourly shares of time, not negative.
        fluctuation: 0.5 is the paper's 50 %.
        pause: hours; events so close to the last are duplicates of it.
        start: of the first hour, for the months.

    Returns:
        Sequences named ``sensor/year-month``, times in hours from the start of the month, types 0 up and 1 down.
    """
    if occupancy.ndim != 2 or not np.isfinite(occupancy).all() or (occupancy < 0).any():
        raise DataError("occupancy has to be a table of finite numbers from 0", remedy="repair the file")
    change = np.diff(occupancy, axis=0)
    jump = np.vstack([np.zeros((1, occupancy.shape[1]), bool), np.abs(change) > fluctuation * occupancy[:-1]])
    kept = _without_duplicates(jump, pause)
    month = _months(len(occupancy), start)
    sequences, short = [], 0
    for sensor in range(occupancy.shape[1]):
        hours = np.flatnonzero(kept[:, sensor])
        kinds = np.where(change[hours - 1, sensor] > 0, UP, DOWN)
        for first, last, name in month:
            inside = slice(*np.searchsorted(hours, (first, last)))
            times = (hours[inside] - first).astype(np.float64)
            if len(times) < 2:
                short += 1
            else:
                sequences.append(EventSequence(times, kinds[inside].astype(np.int64), id=f"{sensor}/{name}"))
    counts = (int(jump.sum() - kept.sum()), short)
    notes = {what: count for what, count in zip(_NOTES, counts, strict=True) if count}
    return EventSet(sequences, type_names=("up", "down"), notes=notes)


def _without_duplicates(jump: Bool[np.ndarray, "hours sensors"], pause: float) -> Bool[np.ndarray, "hours sensors"]:
    """Hour by hour for all sensors at once: keep a jump if the last kept one is more than the pause away."""
    kept = np.zeros_like(jump)
    last: Int64[np.ndarray, " sensors"] | np.ndarray = np.full(jump.shape[1], -np.inf)
    for hour, candidates in enumerate(jump):
        now = candidates & (hour - last > pause)
        kept[hour] = now
        last[now] = hour
    return kept


def _months(hours: int, start: dt.datetime) -> list[tuple[int, int, str]]:
    """First hour, hour after the last, and name of every calendar month."""
    months, first = [], 0
    year, number = start.year, start.month
    while first < hours:
        after = dt.datetime(year + number // 12, number % 12 + 1, 1)
        last = -(-int((after - start).total_seconds()) // 3600)
        months.append((first, min(last, hours), f"{year}-{number:02d}"))
        first, year, number = last, after.year, after.month
    return months

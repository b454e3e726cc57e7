"""Event sequences from neonatal seizure annotations and from road occupancy."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterator

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int64
from numpy.typing import ArrayLike

from contiformer.data.catalog.registry import dataset_info
from contiformer.data.catalog.storage import require_file
from contiformer.data.errors import DataError, naming_file
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.files import read_bytes, read_text
from contiformer.data.readers.columns import guarded
from contiformer.data.readers.jsonl import read_events

Occupancy = Float[np.ndarray, "hours sensors"]
#: Annotations of the three experts, second by second.
EXPERTS = {"A": "annotations_2017_A_fixed.csv", "B": "annotations_2017_B.csv", "C": "annotations_2017_C.csv"}
UP, DOWN = 0, 1
#: The first hour of the file, which covers 2015 and 2016: 17,544 hours.
START = dt.datetime(2015, 1, 1)


def load_neonate(expert: str = "C") -> EventSet:
    """One sequence of seizure onsets, in minutes from the start of the recording, per neonate with at least two.

    The annotations are those of expert A, B or C. The paper does not say whose it uses, only that 48 of the 79 neonates
    have two or more seizures; C is nearest, with 46. Neonates with fewer are left out and counted in the notes.
    """
    if expert not in EXPERTS:
        raise DataError(f"there is no expert {expert!r}", remedy=f"pass one of {', '.join(EXPERTS)}")
    everyone = [EventSequence.of(np.asarray(onsets) / 60.0, id=neonate) for neonate, onsets in _onsets(expert)]
    several = [sequence for sequence in everyone if len(sequence) >= 2]
    note = f"neonates with fewer than two seizures by expert {expert}, left out"
    return EventSet(several, type_names=("seizure onset",), notes={note: len(everyone) - len(several)})


def _onsets(expert: str) -> Iterator[tuple[int | str | None, ArrayLike]]:
    """Neonate and onset seconds, from the annotations or from onsets derived earlier."""
    info = dataset_info("Neonate")
    names = (f"{EXPERTS[expert]}.gz", "neonate_seizure_onsets.jsonl.gz")
    path = require_file(info, *(f"{info.folder}/{name}" for name in names))
    if path.name.startswith("neonate_seizure_onsets"):
        for sequence in read_events(path, keep=lambda record: record.get("expert") == expert):
            yield sequence.id, sequence.times
        return
    yield from onsets_from_marks(read_text(path), str(path))


def onsets_from_marks(text: str, file: str) -> Iterator[tuple[int, list[int]]]:
    """From a table with one column per neonate and one row per second (1: seizure, 0: none, empty: after the end)."""
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except (csv.Error, ValueError) as error:
        raise DataError(f"this is no table ({error})", file=file, remedy="download it again") from None
    values = {"1": 1, "0": 0, "": 0, "1.0": 1, "0.0": 0, "nan": 0, "NaN": 0}
    marks = np.zeros((len(rows) + 1, len(header)), np.int8)
    for second, row in enumerate(rows, 1):
        if len(row) != len(header) or any(mark not in values for mark in row):
            problem = f"expected {len(header)} marks 0, 1 or nothing"
            raise DataError(problem, file=file, row=second + 1, remedy="download it again")
        marks[second] = [values[mark] for mark in row]
    starts = np.diff(marks, axis=0) == 1
    for column, name in enumerate(header):
        if not name.strip().isdigit():
            raise DataError(f"{name!r} is not the number of a neonate", file=file, row=1, column=name)
        yield int(name), np.flatnonzero(starts[:, column]).tolist()


def load_traffic(sensors: int | None = None, *, fluctuation: float = 0.5, pause: float = 6.0) -> EventSet:
    """Sequences of jumps up and down, one per sensor and month; options as in :func:`events_from_occupancy`.

    ``sensors``: only the first so many columns. The paper counts 2,585 sequences where all give about 20,000, so
    it must have used a part; it does not say which.
    """
    info = dataset_info("Traffic")
    path = require_file(info, f"{info.folder}/traffic.txt.gz")
    data = read_bytes(path)
    occupancy = guarded(
        lambda: pl.read_csv(data, has_header=False, infer_schema_length=0).cast(pl.Float64).to_numpy(), path
    )
    if sensors is not None and not 1 <= sensors <= occupancy.shape[1]:
        raise DataError(f"there are {occupancy.shape[1]} sensors, not {sensors}", file=path)
    with naming_file(path):
        return events_from_occupancy(occupancy[:, :sensors], fluctuation=fluctuation, pause=pause)


def events_from_occupancy(
    occupancy: Occupancy, *, fluctuation: float = 0.5, pause: float = 6.0, start: dt.datetime = START
) -> EventSet:
    """Events from hourly road occupancy by the paper's rule, with what it leaves open decided as follows.

    Hour ``t`` is an event where ``|x[t] - x[t-1]| > fluctuation * x[t-1]``, relative to the hour before; a rise from
    zero is one, however small. Its type is the direction. Going forward in time, an event not later than ``pause``
    hours after the last one that was kept is removed, also across the end of a month. Then sequences are cut at
    calendar months. Those with fewer than two events have nothing to predict: they are left out, and counted.

    Sequences are named ``sensor/year-month``; times are hours from the start of the month, types 0 up and 1 down. The
    first hour is at ``start``.
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
    notes = {"events within the pause after another one, removed": int(jump.sum() - kept.sum())}
    notes["sensor-months with fewer than two events, left out"] = short
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

"""Classification sets with unequal lengths, gaps or real time stamps, and a set with a label at each time."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl

from contiformer.data.catalog.registry import DatasetInfo, dataset_info
from contiformer.data.catalog.storage import require_file
from contiformer.data.catalog.uea import read_archive_part
from contiformer.data.errors import DataError, naming_file
from contiformer.data.files import read_text
from contiformer.data.readers.columns import pick, words
from contiformer.data.readers.csv import read_table
from contiformer.data.readers.frames import from_frame
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Channels of the sets in tables, and the unit of their times.
_TABLES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "Animals": (("y", "x"), "h"),
    "Vehicles": (("y", "x"), "s"),
    "GoTrack": (("lat", "lon"), "s"),
    "RFID": (("acc_frontal", "acc_vertical", "acc_lateral", "antenna", "rssi", "phase", "frequency"), "s"),
}
#: Classes of the rows of RFID, by their numbers in the file.
ACTIVITIES = {"1": "sit on bed", "2": "sit on chair", "3": "lying", "4": "ambulating"}
#: The folds to use, the preferred ones first: published folds of GoTrack cut pairs of identical tracks.
_FOLDS = {"Animals": "folds_published"}
_OWN_FOLDS, _HOLDOUT = "folds_own_seed0", "holdout70_published"


def load_irregular(name: str, *, split: str | None = None, fold: int | None = None) -> SeriesSet:
    """A classification set, whole or one part of a split.

    - Sets of the UCR archive (AllGestureWiimoteX, DodgerLoopDay, PLAID, ...): the archive's ``train`` and ``test``.
      Times are positions 0, 1, 2, ...; a missing value is NaN.
    - Animals, Vehicles: trajectories with real times; without ``fold`` the published 70/30 split.
    - GoTrack: trajectories; five stratified folds that keep identical tracks together.
    - RFID: readings of a tag on older people. The label belongs to each time: targets are one column for each activity
      with 1 where it takes place, at the times of the readings. ``antenna`` is one channel for each antenna.

    Args:
        split: ``train`` or ``test``; None: all series, of sets that come in one table.
        fold: one of five folds, from 1.
    """
    info = dataset_info(name, "irregular")
    if split not in {None, "train", "test"}:
        raise DataError(f"{info.name} has no part {split!r}", remedy="pass 'train' or 'test'")
    if info.name not in _TABLES:
        if fold is not None:
            raise DataError(f"{info.name} has no folds", remedy="leave out fold=: the archive has one split")
        return read_archive_part(info, split or "train")
    wanted = None if split is None and fold is None else _ids(info, split, fold)
    data = _table(info)
    return data if wanted is None else data.with_ids(wanted)


def _table(info: DatasetInfo) -> SeriesSet:
    path = require_file(info, info.forms[0].files[0])
    channels, unit = _TABLES[info.name]
    with naming_file(path):
        table, place = read_table(path, "id")
        if info.name != "RFID":
            data = from_frame(
                table, id="id", time="time", values=channels, label="label", duplicates="mean", place=place
            )
            return data.described(replace(data.schema, time_unit=unit))
        labels = words(pick(table, "label", place), place).cast(pl.String)
        unknown = (~labels.is_in(list(ACTIVITIES))).to_numpy()
        place.refuse(unknown, "is no activity", "label", f"the numbers are {', '.join(ACTIVITIES)}")
        marks = [(labels == number).cast(pl.Float64).alias(name) for number, name in ACTIVITIES.items()]
        table = table.with_columns(*marks)
        sex = (pick(table, "sex", place) == "F").cast(pl.Float64).alias("female")
        data = from_frame(
            table.with_columns(sex, pl.col("antenna").cast(pl.String)),
            id="id",
            time="time",
            values=(*channels, *ACTIVITIES.values()),
            static=("female",),
            categorical={"antenna": ("1", "2", "3", "4")},
            duplicates="keep",
            place=place,
        )
    targets, seen = len(ACTIVITIES), len(data.channels) - len(ACTIVITIES)
    schema = replace(
        data.schema, channels=data.channels[:seen], targets=tuple(ACTIVITIES.values()), units=(), time_unit=unit
    )
    return SeriesSet([_with_targets(one, targets) for one in data], schema=schema, notes=data.notes)


def _with_targets(series: Series, count: int) -> Series:
    """The last columns as targets at the same times."""
    seen, asked = series.values[:, :-count], series.values[:, -count:]
    return replace(series, values=seen, target_times=series.times, target_values=np.ascontiguousarray(asked))


def _ids(info: DatasetInfo, split: str | None, fold: int | None) -> list[str | int]:
    path = require_file(info, f"{info.folder}/splits.json")
    if split is None:
        raise DataError(f"fold={fold} has two parts, and split= is missing", remedy="pass split='train' or 'test'")
    try:
        found = json.loads(read_text(path))
        folds = found[_FOLDS.get(info.name, _OWN_FOLDS)]
        chosen = found.get(_HOLDOUT) if fold is None else folds[fold - 1] if 1 <= fold <= len(folds) else None
        if chosen is not None:
            return list(chosen[split])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError("expected lists of ids by fold and part", file=path, remedy="download it again") from None
    problem = f"{info.name} has no single split" if fold is None else f"{info.name} has no fold {fold}"
    raise DataError(problem, remedy=f"pass fold=1 to {len(folds)}")

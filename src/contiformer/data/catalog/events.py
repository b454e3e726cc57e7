"""Event sets of the paper and of common benchmarks, in their published folds and parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contiformer.data.catalog.event_records import load_neonate, load_traffic
from contiformer.data.catalog.registry import DatasetInfo, dataset_info
from contiformer.data.catalog.storage import find_file, missing_data, require_file
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.jsonl import read_events
from contiformer.data.synthetic import GENERATORS

#: How many folds each set has: as in the paper, and one for the benchmarks with a published split.
EVENT_FOLDS = {"Synthetic": 4, "Neonate": 4, "Traffic": 4, "MIMIC-II": 5, "BookOrder": 5, "StackOverflow": 5}
#: Loaders of sets without published parts.
_WHOLE: dict[str, Callable[..., Any]]
_WHOLE = {"Neonate": load_neonate, "Traffic": load_traffic, "Synthetic": GENERATORS["synthetic"]}
PARTS = ("train", "dev", "test")
#: One catalogue in consecutive parts, with a part before the train part.
_EARTHQUAKES = "SanJacinto"
DEV_SHARE = 0.1
#: From the unit of the files to the paper's, judged by mean and standard deviation of the gaps.
BOOKORDER_SCALE = 1000.0


def load_events(name: str, *, fold: int = 1, split: str = "train", seed: int = 0, **options: Any) -> EventSet:
    """One part of one fold of an event set.

    - Synthetic, Neonate, Traffic: 4 folds, drawn with the seed; dev is a tenth of the rest.
    - MIMIC-II: 5 folds, train, dev and test as published.
    - BookOrder, StackOverflow: 5 folds, test as published; dev is a tenth of the published train part, by the seed.
    - Taxi, Taobao, Retweet, Earthquake, Amazon, Reddit, Twitter, Yelp: one fold, train, dev and test as published.
    - SanJacinto: one catalogue of earthquakes; train, dev and test, and ``aux`` before them, are consecutive parts of
      one sequence each, cut into sequences of ``chunk`` events if that is given. Features: the magnitude.

    Args:
        fold: from 1.
        split: ``train``, ``dev`` or ``test``.
        seed: for folds and dev parts that are not published.
        options: Neonate: ``expert``; Traffic: ``sensors``, ``fluctuation``, ``pause``; BookOrder: ``scale``, a factor
            for the times, and those of :func:`clipped`; SanJacinto: ``chunk``; Synthetic: those of its
            generator but the seed.
    """
    info = dataset_info(name, "events")
    count = EVENT_FOLDS.get(info.name, 1)
    check_fold(info.name, count, fold, "train" if (info.name, split) == (_EARTHQUAKES, "aux") else split)
    if info.name in _WHOLE:
        whole = _called(_WHOLE[info.name], info.name, options)
        rest, test = whole.k_fold(count, seed=seed)[fold - 1]
        return test if split == "test" else held_out(rest, split, seed)
    if info.name == "BookOrder":
        options = dict(options)
        part = _book_order(info, fold, split, seed, float(options.pop("scale", BOOKORDER_SCALE)))
        return _called(lambda **given: clipped(part, **given), info.name, options)
    if info.name == _EARTHQUAKES:
        path = require_file(info, *info.forms[0].files)
        catalogue = _part(path, lambda record: record.get("split") == split, "magnitudes")
        return _called(partial(_chunks, catalogue), info.name, options)
    if options:
        raise DataError(f"{info.name} has no option {', '.join(options)}", remedy="this set takes no further options")
    if info.name == "MIMIC-II":
        path = require_file(info, *info.forms[0].files)
        return _part(path, lambda record: record.get("fold") == fold and record.get("split") == split)
    if info.name == "StackOverflow":
        return _stack_overflow(info, fold, split, seed)
    return _published(info, split)


def held_out(train: EventSet, split: str, seed: int) -> EventSet:
    """A tenth of the sequences, drawn with the seed, is the dev part (``dev``); the others are ``train``."""
    left, dev = train.split(1 - DEV_SHARE, DEV_SHARE, seed=seed)
    return dev if split == "dev" else left


def check_fold(name: str, folds: int, fold: int, split: str) -> None:
    """Raise DataError for a fold or a part that there is not."""
    if split not in PARTS:
        raise DataError(f"{name} has no part {split!r}", remedy=f"pass one of {', '.join(PARTS)}")
    if not 1 <= fold <= folds:
        which = f"a fold from 1 to {folds}" if folds > 1 else "fold=1: this set has one split, as published"
        raise DataError(f"{name} has no fold {fold}", remedy=f"pass {which}")


def clipped(data: EventSet, *, max_length: int | None = 500, max_gap: float | None = 70.0) -> EventSet:
    """Sequences of bounded length and with bounded time between events, as the paper has them for BookOrder.

    Longer gaps become ``max_gap``, and events beyond ``max_length`` are cut off. None: no bound.
    """
    if (max_length is not None and max_length < 1) or (max_gap is not None and not max_gap > 0):
        raise DataError(f"max_length and max_gap must be positive or None, got {max_length} and {max_gap}")
    kept = data.map(lambda sequence: sequence.events(slice(max_length)))
    notes = {**data.notes, f"events beyond number {max_length}, cut off": int((data.lengths - kept.lengths).sum())}
    if max_gap is not None:
        long_gaps = sum(int((np.diff(one.times) > max_gap).sum()) for one in kept)
        notes[f"gaps longer than {max_gap:g}, made {max_gap:g}"] = long_gaps
        kept = kept.map(lambda sequence: _with_short_gaps(sequence, max_gap))
    return EventSet(list(kept), num_types=data.num_types, type_names=data.type_names, notes=notes)


def _chunks(data: EventSet, chunk: int | None = None) -> EventSet:
    """Sequences of at most so many events, named ``0/0``, ``0/1``, ..., whose times go on."""
    if chunk is None:
        return data
    if chunk < 1:
        raise DataError(f"chunk must be 1 or more, got {chunk}")
    pieces = [
        replace(one.events(slice(start, start + chunk)), id=f"{n}/{start // chunk}")
        for n, one in enumerate(data)
        for start in range(0, len(one), chunk)
    ]
    return EventSet(pieces, num_types=data.num_types, type_names=data.type_names, notes=data.notes)


def _with_short_gaps(sequence: EventSequence, most: float) -> EventSequence:
    gaps = np.diff(sequence.times)
    if not (gaps > most).any():
        return sequence
    return replace(sequence, times=sequence.times[0] + np.append(0.0, np.cumsum(np.minimum(gaps, most))))


def _called(loader: Callable[..., EventSet], name: str, options: dict[str, Any]) -> EventSet:
    try:
        return loader(**options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise DataError(f"{name}: {error}", remedy="see the help of load_events for its options") from None


def observation_windows(name: str, split: str = "train") -> list[tuple[float, float]]:
    """Start and end of the observation of each sequence, for sets that state them: Reddit, Twitter, Yelp, SanJacinto.

    The start is 0 unless it is stated.
    """
    info = dataset_info(name, "events")
    path = require_file(info, *info.forms[0].files)
    found: list[tuple[float, float]] = []

    def keep(record: dict[str, Any]) -> bool:
        mine = record.get("split") == split
        if mine and not isinstance(record.get("t_max"), int | float):
            raise DataError(f"{info.name} does not state when observation ends", column="t_max")
        if mine:
            found.append((float(record.get("t_start", 0.0)), float(record["t_max"])))
        return mine

    read_events(path, keep=keep)
    return found


def _part(path: Path, belongs: Callable[[dict[str, Any]], bool], marks: str | None = None) -> EventSet:
    """The sequences that belong to a part; ``marks`` names a list of numbers that becomes the feature of each event."""

    def keep(record: dict[str, Any]) -> bool:
        if marks is not None and isinstance(record.get(marks), list):
            record["features"] = [[mark] for mark in record[marks]]
        for name in ("times", "types", "num_types"):
            if record.get(name) is None:
                raise DataError(f"there are no {name}", column=name, remedy="each sequence needs them")
        return belongs(record)

    part = read_events(path, keep=keep)
    part.notes.clear()
    return part


def _book_order(info: DatasetInfo, fold: int, split: str, seed: int, scale: float) -> EventSet:
    if not 0 < scale < np.inf:
        raise DataError(f"times cannot be scaled by {scale}", remedy="pass a positive factor")
    path = require_file(info, info.forms[0].files[fold - 1])
    published = "test" if split == "test" else "train"
    part = _part(path, lambda record: record.get("split") == published)
    part = part.map(lambda sequence: replace(sequence, times=sequence.times * scale))
    return part if split == "test" else held_out(part, split, seed)


def _stack_overflow(info: DatasetInfo, fold: int, split: str, seed: int) -> EventSet:
    path = require_file(info, *info.forms[0].files)
    rough = set()

    def belongs(record: dict[str, Any]) -> bool:
        if record.get("time_precision") == "float32":
            rough.add(str(record.get("id")))
        tested = record.get("test_folds")
        if not isinstance(tested, list):
            raise DataError("a sequence has no list of folds", column="test_folds")
        return (fold in tested) == (split == "test")

    part = _part(path, belongs)
    if split != "test":
        lacking = int(str(info.sizes["train"]).split()[0]) - len(part)
        part = held_out(part, split, seed)
        if lacking > 0:
            part.notes["train sequences of the published set that this copy lacks"] = lacking
    count = sum(str(name) in rough for name in part.ids)
    if count:
        part.notes["sequences with float32 times, up to about 125 s off"] = count
    return part


def _published(info: DatasetInfo, split: str) -> EventSet:
    complete = [form for form in info.forms if form.complete and all(find_file(path) for path in form.files)]
    # two versions of a set are never mixed: a complete one comes before an incomplete one
    for form in (*complete, *info.forms):
        for file in form.files:
            path = find_file(file)
            if path is None:
                continue
            if file.endswith(f"/{split}.json"):
                return _part(path, lambda _: True)
            if file.endswith(".jsonl.gz"):
                return _part(path, lambda record: record.get("split") == split)
    every = (file for form in info.forms for file in form.files)
    raise missing_data(info, *(file for file in every if file.endswith((f"/{split}.json", ".jsonl.gz"))))

"""JSON lines of events: one sequence per line.

``{"times": [0.5, 2.0], "types": [1, 0], "num_types": 2, "id": "a"}``; ``types``, ``num_types``, ``id``, ``label`` and
``features`` may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from contiformer.data.errors import DataError, PathText
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.files import read_text, write_text


def json_lines(path: PathText) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is not empty."""
    for row, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"not JSON ({str(error)[:80]})"
            raise DataError(problem, file=path, row=row, remedy="write one object per line") from None
        if not isinstance(found, dict):
            problem = f"a {type(found).__name__}, not an object"
            raise DataError(problem, file=path, row=row, remedy='write {"times": [...]}')
        yield row, found


def read_events(
    path: PathText, *, keep: Callable[[dict[str, Any]], bool] | None = None, num_types: int | None = None
) -> EventSet:
    """Event sequences from JSON lines, gzipped or not.

    ``keep`` tells by its object whether a line is taken; others are counted. ``num_types`` is by default what the lines
    say, or one more than the largest type.
    """
    sequences, stated, skipped, names = [], set(), 0, None
    for row, found in json_lines(path):
        if keep is not None and not keep(found):
            skipped += 1
            continue
        try:
            sequences.append(_sequence(found))
        except DataError as error:
            raise DataError(error.problem, file=path, row=row, remedy=error.remedy) from None
        if found.get("num_types") is not None:
            stated.add(_count(found["num_types"], path, row))
        if found.get("type_names", names) != names and len(sequences) > 1:
            raise DataError("type_names differ from those of the line before", file=path, row=row)
        names = found.get("type_names", names)
    if len(stated) > 1:
        raise DataError(f"lines disagree on num_types: {sorted(stated)}", file=path, remedy="make them equal")
    if not sequences:
        raise DataError("there are no sequences", file=path)
    notes = {"sequences of other parts in the file": skipped}
    total = num_types if num_types is not None else next(iter(stated), None)
    try:
        named = None if names is None else [str(name) for name in names]
        return EventSet(sequences, num_types=total, type_names=named, notes=notes)
    except (DataError, TypeError) as error:
        raise DataError(str(error), file=path) from None


def _count(value: object, path: PathText, row: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise DataError(f"num_types is {str(value)[:40]}", file=path, row=row, remedy="give a whole number")
    return value


def _sequence(found: dict[str, Any]) -> EventSequence:
    if not isinstance(found.get("times"), list):
        raise DataError('there is no list "times"', remedy='write {"times": [...], "types": [...]}')
    times, types, features = found["times"], found.get("types"), found.get("features")
    if not all(isinstance(t, int | float) and not isinstance(t, bool) for t in times):
        raise DataError("a time is not a number", remedy="give numbers")
    try:
        stamps = np.array(times, np.float64)
    except OverflowError:
        raise DataError("a time is too large") from None
    if types is not None and not (isinstance(types, list) and all(type(k) is int and 0 <= k < 2**31 for k in types)):
        raise DataError("types are not whole numbers from 0", remedy="number the types 0, 1, 2, ...")
    kinds = None if types is None else np.array(types, np.int64)
    name, label = found.get("id"), found.get("label")
    if not isinstance(name, str | int | None) or not isinstance(label, str | int | float | None):
        raise DataError("id and label have to be words or numbers")
    if features is not None and isinstance(features, list):
        features = [[np.nan if x is None else x for x in row] if isinstance(row, list) else row for row in features]
        width = found.get("num_features")
        if not features and type(width) is int and 0 <= width < 2**31:
            features = np.zeros((0, width))
    return EventSequence.of(stamps, kinds, features=features, label=label, id=name)


def write_events(data: EventSet, path: PathText) -> None:
    """Lines that :func:`read_events` reads back equal; gzipped when the name ends in ``.gz``."""
    if len(data) == 0:
        raise DataError("there are no sequences to write", file=path)
    lines = []
    for sequence in data:
        found: dict[str, Any] = {"times": sequence.times.tolist(), "types": sequence.types.tolist()}
        found |= {"num_types": data.num_types, "type_names": data.type_names}
        if sequence.features is not None:
            found["num_features"] = sequence.features.shape[1]
            found["features"] = [[None if np.isnan(x) else x for x in row] for row in sequence.features.tolist()]
        found |= {name: getattr(sequence, name) for name in ("label", "id") if getattr(sequence, name) is not None}
        lines.append(json.dumps(found))
    write_text(path, "".join(f"{line}\n" for line in lines))

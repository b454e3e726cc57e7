"""JSON lines of events: one sequence per line, or one list of sequences in a file.

``{"times": [0.5, 2.0], "types": [1, 0], "num_types": 2, "id": "a"}``; ``types``, ``num_types``, ``id``, ``label`` and
``features`` may be missing. The names of the EasyTPP files are read, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from contiformer.data.errors import DataError, PathText, naming_file
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.files import read_text, write_text

#: Our names by those of the EasyTPP files.
_EASYTPP = {"time_since_start": "times", "type_event": "types", "dim_process": "num_types", "seq_idx": "id"}


def _objects(path: PathText) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row, object) of every line that is not empty, or (number, object) of one list."""
    text = read_text(path)
    is_list = text.lstrip().startswith("[")
    for row, line in enumerate([text] if is_list else text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem, place = f"not JSON ({str(error)[:80]})", None if is_list else row
            raise DataError(problem, row=place, remedy="write one object per line") from None
        for number, one in enumerate(found, start=1) if is_list else [(row, found)]:
            if not isinstance(one, dict):
                problem = f"a {type(one).__name__}, not an object"
                raise DataError(problem, row=number, remedy='write {"times": [...]}')
            yield number, {_EASYTPP.get(str(name), str(name)): value for name, value in one.items()}


def read_events(
    path: PathText, *, keep: Callable[[dict[str, Any]], bool] | None = None, num_types: int | None = None
) -> EventSet:
    """Event sequences from JSON lines, gzipped or not.

    ``keep`` tells by its object whether a sequence is taken; others are counted. By default ``num_types`` is what the
    lines say, or one more than the largest type.

    Example:
        >>> from contiformer.data import EventSequence, EventSet, read_events, write_events
        >>> write_events(EventSet([EventSequence.of([0, 1.5], [0, 1])]), "orders.jsonl")
        >>> read_events("orders.jsonl")[0].times.tolist()
        [0.0, 1.5]
    """
    with naming_file(path):
        return _read(path, keep or (lambda _: True), num_types)


def _read(path: PathText, keep: Callable[[dict[str, Any]], bool], num_types: int | None) -> EventSet:
    sequences: list[EventSequence] = []
    stated = names = None
    skipped = 0
    for row, found in _objects(path):
        count = found.get("num_types")
        if count is not None:
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
                problem = f"num_types is {str(count)[:40]}"
                raise DataError(problem, row=row, column="num_types", remedy="give a whole number")
            if stated not in (None, count):
                problem = f"num_types is {count}, and {stated} in the lines before"
                raise DataError(problem, row=row, column="num_types", remedy="make them equal")
            stated = count
        try:
            if not keep(found):
                skipped += 1
                continue
            sequences.append(_sequence(found))
        except DataError as error:
            raise DataError(error.problem, row=row, column=error.column, remedy=error.remedy) from None
        if found.get("type_names", names) != names and len(sequences) > 1:
            problem = "type_names differ from those of the lines before"
            raise DataError(problem, row=row, column="type_names", remedy="write the same list in every line")
        names = found.get("type_names", names)
    if skipped and not sequences:
        raise DataError("there is no sequence of this part", remedy="this copy may be without it")
    if not sequences:
        raise DataError("the file has no sequences", remedy="write one per line")
    total = stated if num_types is None else num_types
    try:
        named = None if names is None else [str(name) for name in names]
        notes = {"sequences of other parts in the file": skipped}
        return EventSet(sequences, num_types=total, type_names=named, notes=notes)
    except TypeError as error:
        raise DataError(str(error)) from None


def _sequence(found: dict[str, Any]) -> EventSequence:
    if not isinstance(found.get("times"), list):
        raise DataError('there is no list "times"', remedy='write {"times": [...], "types": [...]}')
    times, types, features = found["times"], found.get("types"), found.get("features")
    if not all(isinstance(t, int | float) and not isinstance(t, bool) for t in times):
        raise DataError("a time is not a number", remedy="give numbers")
    try:
        stamps = np.array(times, np.float64)
    except OverflowError:
        raise DataError("a time is too large for a 64-bit float", remedy="use a larger unit") from None
    if types is not None and not (isinstance(types, list) and all(type(k) is int and 0 <= k < 2**31 for k in types)):
        raise DataError("types are not whole numbers from 0", remedy="number the types 0, 1, 2, ...")
    kinds = None if types is None else np.array(types, np.int64)
    name, label = found.get("id"), found.get("label")
    if not isinstance(name, str | int | None) or not isinstance(label, str | int | float | None):
        column = "label" if isinstance(name, str | int | None) else "id"
        raise DataError("id and label have to be words or numbers", column=column)
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

"""Neonatal seizures: from what three experts marked second by second to sequences of onsets in minutes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from contiformer.data.catalog import registry, store
from contiformer.data.catalog.sequences import as_sequence, read_records
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.text import read_text

EXPERTS = tuple(registry.NEONATE_FILES)
#: The expert whose count of neonates with two or more seizures is nearest to the paper's 48.
DEFAULT_EXPERT = "C"
SECONDS = 60.0


def load_neonate(expert: str = DEFAULT_EXPERT) -> EventSet:
    """One sequence of seizure onsets, in minutes from the start of the recording, per neonate with at least two.

    The paper does not say whose annotations it uses, only that 48 of the 79 neonates have two or more seizures. By
    expert A there are 37, by B 38, by C 46: C is nearest and the default. Neonates with fewer are left out and
    counted in the notes. A seizure that runs at the first second has its onset there, though it may have begun earlier.

    Args:
        expert: ``A``, ``B`` or ``C``.
    """
    if expert not in EXPERTS:
        raise DataError(f"there is no expert {expert!r}", remedy=f"pass one of {', '.join(EXPERTS)}")
    everyone = [EventSequence.of(np.asarray(onsets) / SECONDS, id=neonate) for neonate, onsets in _onsets(expert)]
    several = [sequence for sequence in everyone if len(sequence) >= 2]
    note = f"neonates with fewer than two seizures by expert {expert}, left out"
    return EventSet(several, type_names=("seizure onset",), notes={note: len(everyone) - len(several)})


def _onsets(expert: str) -> Iterator[tuple[int | str | None, ArrayLike]]:
    """Neonate and onset seconds, from the annotations or from onsets derived earlier."""
    info = registry.get("Neonate")
    marks = f"{info.folder}/{registry.NEONATE_FILES[expert]}.gz"
    derived = f"{info.folder}/neonate_seizure_onsets.jsonl.gz"
    path = store.require(info, marks, derived)
    if path.name.startswith("neonate_seizure_onsets"):
        for row, record in enumerate(read_records(path), 1):
            if record.get("expert") == expert:
                sequence = as_sequence({"types": None, **record}, path, row)
                yield sequence.id, sequence.times
        return
    yield from onsets_from_marks(read_text(path), str(path))


def onsets_from_marks(text: str, file: str) -> Iterator[tuple[int, list[int]]]:
    """From a table with one column per neonate and one row per second (1: seizure, 0: none, empty: after the end).

    Example:
        >>> list(onsets_from_marks("1,2\\n0,1\\n1,1\\n1,0\\n0,\\n1,\\n", "marks.csv"))
        [(1, [1, 4]), (2, [0])]
    """
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except (csv.Error, ValueError) as error:
        raise DataError(f"this is no table ({error})", file=file, remedy="download it again") from None
    values = {"1": 1, "0": 0, "": 0, "1.0": 1, "0.0": 0, "nan": 0, "NaN": 0}
    marks = np.zeros((len(rows) + 1, len(header)), np.int8)
    for second, row in enumerate(rows, 1):
        if len(row) != len(header) or any(mark not in values for mark in row):
            raise DataError(
                f"expected {len(header)} marks 0, 1 or nothing", file=file, row=second + 1, remedy="download it again"
            )
        marks[second] = [values[mark] for mark in row]
    starts = np.diff(marks, axis=0) == 1
    for column, name in enumerate(header):
        if not name.strip().isdigit():
            raise DataError(f"{name!r} is not the number of a neonate", file=file, row=1, column=name)
        yield int(name), np.flatnonzero(starts[:, column]).tolist()

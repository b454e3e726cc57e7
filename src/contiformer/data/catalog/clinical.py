"""Clinical sets, and the records of PhysioNet 2012: the first 48 hours of 12,000 stays in intensive care."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.catalog.cohorts import load_nafld, load_sepsis
from contiformer.data.catalog.registry import DatasetInfo, dataset_info
from contiformer.data.catalog.storage import require_file
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.files import read_bytes, read_text
from contiformer.data.readers.columns import guarded
from contiformer.data.readers.duplicates import Policy, scatter
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

#: The 37 time-varying variables with their units, in the order of the files.
# fmt: off
VARIABLES: dict[str, str | None] = {
    "ALP": "IU/L", "ALT": "IU/L", "AST": "IU/L", "Albumin": "g/dL", "BUN": "mg/dL", "Bilirubin": "mg/dL",
    "Cholesterol": "mg/dL", "Creatinine": "mg/dL", "DiasABP": "mmHg", "FiO2": None, "GCS": None, "Glucose": "mg/dL",
    "HCO3": "mmol/L", "HCT": "%", "HR": "bpm", "K": "mEq/L", "Lactate": "mmol/L", "MAP": "mmHg", "MechVent": None,
    "Mg": "mmol/L", "NIDiasABP": "mmHg", "NIMAP": "mmHg", "NISysABP": "mmHg", "Na": "mEq/L", "PaCO2": "mmHg",
    "PaO2": "mmHg", "Platelets": "cells/nL", "RespRate": "bpm", "SaO2": "%", "SysABP": "mmHg", "Temp": "°C",
    "TroponinI": "µg/L", "TroponinT": "µg/L", "Urine": "mL", "WBC": "cells/nL", "Weight": "kg", "pH": None,
}
# fmt: on
#: The descriptors, known on admission.
DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")
UNKNOWN = -1.0
MINUTES = 60
_HEADER = ("RecordID", "Time", "Parameter", "Value")
_OUTCOME = "In-hospital_death"
#: The note on records of length 0.
EMPTY = "records without a measurement, kept with length 0"
_COHORTS: dict[str, Callable[..., SeriesSet]] = {"P19": load_sepsis, "NAFLD": load_nafld}
_CODES = {name: code for code, name in enumerate(VARIABLES)}
# the descriptors that are no variables follow; Weight as a descriptor is told apart by its place
_CODES |= {name: len(VARIABLES) + n for n, name in enumerate(DESCRIPTORS[:-1])}


def load_clinical(
    name: str, *, fold: int | None = None, split: str | None = None, duplicates: Policy = "mean", **options: Any
) -> SeriesSet:
    """A clinical set, whole or one part of a published split.

    - ``PhysioNet2012-A``, ``-B`` and ``-C``: one set of the challenge, from one table or from the original folder.
    - ``P12``: the 11,988 records of the three sets that have a measurement, with five published splits.
    - ``P19``: PhysioNet 2019, hourly records labelled by sepsis, with five published splits.
    - ``NAFLD``: laboratory values of people with fatty liver disease, labelled by death or an event.

    A series of PhysioNet 2012 is a record: times in hours since admission, 37 channels (float32) with NaN where nothing
    was measured, five static features with NaN where unknown, and the label 1 for a death in hospital, 0 otherwise.
    The descriptors are the rows at 00:00 for Age, Gender, Height and ICUType, and the first one there for Weight; that
    row is no measurement and not in the channel Weight, all other rows for Weight are. Rows with -1 for a descriptor or
    a weight mean unknown. Records without any measurement stay in the single sets, with length 0.

    Args:
        fold: the number of the published split, from 1 to 5.
        split: its part, ``train``, ``val`` or ``test``; give both or none.
        duplicates: of PhysioNet 2012, for several values of one variable at one time: ``mean``, ``first``, ``last`` or
            ``error``.
        options: of NAFLD: ``label``, ``death`` or an event such as ``diabetes``; ``until``, the last day whose
            measurements are taken, 0 for those before the index date, None for all.
    """
    info = dataset_info(name, "clinical")
    if duplicates not in {"mean", "first", "last", "error"}:
        raise DataError(f"duplicates={duplicates!r} is unknown", remedy="pass 'mean', 'first', 'last' or 'error'")
    if options and info.name != "NAFLD":
        raise DataError(f"{info.name} has no option {', '.join(options)}", remedy="only NAFLD takes further options")
    wanted = None
    if fold is not None or split is not None:
        parts = clinical_split(info.name, 1 if fold is None else fold)
        if fold is None or split not in parts:
            problem = f"{info.name} has no part {split!r} of split {fold}"
            raise DataError(problem, remedy=f"pass fold=1 to 5 and split= one of {', '.join(parts)}")
        wanted = parts[split]
    if info.name in _COHORTS:
        data = _COHORTS[info.name](info, **options)
    elif info.name == "P12":
        sets = [_challenge_set(info, letter, duplicates) for letter in "abc"]
        measured = [series for data in sets for series in data if len(series)]
        counted = {what: sum(data.notes.get(what, 0) for data in sets) for data in sets for what in data.notes}
        empty = counted.pop(EMPTY, 0)
        data = SeriesSet(measured, schema=sets[0].schema, notes={**counted, "records without a measurement": empty})
    else:
        data = _challenge_set(info, info.name[-1].lower(), duplicates)
    return data if wanted is None else data.with_ids(wanted)


def clinical_split(name: str, fold: int) -> dict[str, list[str | int]]:
    """Ids of the parts ``train``, ``val`` and ``test`` of a published split of P12 or P19, in the published order."""
    info = dataset_info(name, "clinical")
    file = f"{info.folder}/raindrop_splits.json.gz"
    if file not in info.forms[0].files:
        raise DataError(f"{info.name} has no published split", remedy="leave out fold= and split=, and use k_fold()")
    path = require_file(info, file)
    try:
        found = json.loads(read_text(path))
        splits = {int(key.removeprefix("split")): dict(parts) for key, parts in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise DataError("expected lists of ids by split and part", file=path, remedy="download it again") from None
    if fold not in splits:
        raise DataError(f"{info.name} has no split {fold}", remedy=f"pass one of {', '.join(map(str, splits))}")
    return splits[fold]


def _challenge_set(info: DatasetInfo, letter: str, duplicates: Policy) -> SeriesSet:
    path = require_file(info, f"{info.folder}/set-{letter}.csv.gz", f"{info.folder}/set-{letter}")
    outcomes = read_outcomes(require_file(info, f"{info.folder}/Outcomes-{letter}.txt"))
    return read_records(path, outcomes, duplicates=duplicates)


def read_outcomes(path: Path) -> dict[int, int]:
    """Record -> 1 for a death in hospital, 0 otherwise."""
    header, *rows = read_text(path).splitlines()
    names = [name.strip() for name in header.split(",")]
    for wanted in ("RecordID", _OUTCOME):
        if wanted not in names:
            raise DataError(f"there is no column {wanted!r}", file=path, row=1, remedy=did_you_mean(wanted, names))
    record, death = names.index("RecordID"), names.index(_OUTCOME)
    outcomes = {}
    for row, line in enumerate(rows, 2):
        cells = line.split(",")
        if not line.strip():
            continue
        if len(cells) != len(names) or not cells[record].strip().isdigit() or cells[death].strip() not in {"0", "1"}:
            raise DataError("expected a record number and an outcome 0 or 1", file=path, row=row, column=_OUTCOME)
        outcomes[int(cells[record])] = int(cells[death])
    return outcomes


def read_records(path: Path, outcomes: dict[int, int] | None, *, duplicates: Policy = "mean") -> SeriesSet:
    """From a table ``RecordID,Time,Parameter,Value``, or from a folder with a file ``RecordID.txt`` for each record."""
    table, sources = _joined(path) if path.is_dir() else (path, [])
    try:
        return _built(_parsed(table), outcomes, duplicates)
    except DataError as error:
        file, row = path, error.row
        if sources and row is not None:
            first, file = sources[bisect.bisect_right(sources, row, key=itemgetter(0)) - 1]
            row += 2 - first
        raise DataError(error.problem, file=file, row=row, column=error.column, remedy=error.remedy) from None


def _joined(folder: Path) -> tuple[bytes, list[tuple[int, Path]]]:
    """One table of all files, and the first row of each file in it."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError("there is no file RecordID.txt in this folder", file=folder, remedy="pass the folder set-a")
    pieces, sources, row = [",".join(_HEADER).encode()], [], 2
    for file in files:
        header, *lines = read_bytes(file).splitlines()
        if header.strip() != b"Time,Parameter,Value" or not file.stem.isdigit():
            raise DataError("the first line has to be Time,Parameter,Value, the name RecordID.txt", file=file, row=1)
        mark = file.stem.encode() + b","
        pieces += [mark + line for line in lines]
        sources.append((row, file))
        row += len(lines)
    return b"\n".join(pieces) + b"\n", sources


@dataclass
class _Table:
    """The columns of the table, and counts of the rows that were left out."""

    record: NDArray[np.int64]
    minute: NDArray[np.int64]
    code: NDArray[np.int64]
    value: NDArray[np.float32]
    notes: dict[str, int]

    def keep(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> _Table:
        return _Table(self.record[which], self.minute[which], self.code[which], self.value[which], self.notes)


def _parsed(table: Path | bytes) -> _Table:
    dtypes = {"RecordID": pl.Int64, "Time": pl.Categorical, "Parameter": pl.Categorical, "Value": pl.Float64}
    try:
        frame = guarded(
            lambda: pl.read_csv(table, schema_overrides=dtypes, infer_schema_length=0, glob=False), file=None
        )
    except DataError as error:
        text = table if isinstance(table, bytes) else read_bytes(table)
        raise _first_bad_row(text, error.problem) from None
    if tuple(frame.columns) != _HEADER or not frame.height:
        raise DataError(f"the first line has to be {','.join(_HEADER)}, and others have to follow", row=1)
    minute = _looked_up(frame["Time"], _minutes, -1)
    # the files of the challenge have some lines for RecordID, and a few with a value but no parameter
    code = _looked_up(frame["Parameter"], lambda name: -2 if name == "RecordID" else _CODES.get(name, -1), -3)
    value = frame["Value"].to_numpy().astype(np.float32)
    _check_rows(frame, minute, code, value)
    notes = {"rows without a parameter, left out": int((code == -3).sum())}
    rows = _Table(frame["RecordID"].to_numpy(), minute, code, value, notes)
    return rows.keep(code >= 0) if (code < 0).any() else rows


def _check_rows(frame: pl.DataFrame, minute: np.ndarray, code: np.ndarray, value: np.ndarray) -> None:
    """Raise for the first row of the table that makes no sense."""
    checks = (
        ("RecordID", frame["RecordID"].is_null().to_numpy(), "there is no record number"),
        ("Time", minute < 0, "this is no time hh:mm"),
        ("Parameter", code == -1, "this variable is unknown"),
        ("Value", ~np.isfinite(value), "this is no number"),
    )
    for column, bad, problem in checks:
        if bad.any():
            row = int(np.argmax(bad))
            found = frame[column][row]
            remedy = did_you_mean(str(found), _CODES) if column == "Parameter" else "repair or download it again"
            raise DataError(f"{problem}: {found!r}", row=row + 2, column=column, remedy=remedy)


def _looked_up(column: pl.Series, translate: Callable[[str], int], missing: int) -> NDArray[np.int64]:
    """A number for every row, computed once for every different word."""
    words = column.drop_nulls().unique()
    codes = words.to_physical().to_numpy()
    table = np.full(int(codes.max(initial=0)) + 2, missing, np.int64)
    table[codes] = [translate(word) for word in words.cast(pl.String)]
    return table[column.to_physical().fill_null(len(table) - 1).to_numpy()]


def _minutes(text: str) -> int:
    """Minutes of hh:mm, -1 for anything else."""
    hours, colon, minutes = text.partition(":")
    digits = text.isascii() and colon and hours.isdigit() and minutes.isdigit()
    fits = digits and len(hours) < 5 and len(minutes) == 2 and int(minutes) < MINUTES
    return int(hours) * MINUTES + int(minutes) if fits else -1


def _first_bad_row(text: bytes, complaint: str) -> DataError:
    """The error of the first bad row, found line by line after the fast reader failed."""
    for row, line in enumerate(text.splitlines(), 1):
        cells = line.split(b",")
        if row == 1 or not line.strip():
            continue
        if len(cells) != len(_HEADER):
            return DataError(f"{len(cells)} cells instead of {len(_HEADER)}", row=row, remedy="repair it")
        for name, cell, kind in ((_HEADER[0], cells[0], int), (_HEADER[3], cells[3], float)):
            try:
                kind(cell)
            except ValueError:
                problem = f"{cell.decode('latin-1')!r} is not a number"
                return DataError(problem, row=row, column=name, remedy="repair it")
    return DataError(f"not a table: {complaint}", remedy="download it again")


def _built(rows: _Table, outcomes: dict[int, int] | None, duplicates: Policy) -> SeriesSet:
    records, first, owner = _grouped(rows.record)
    notes = rows.notes
    # the files list records and times in order; whatever does not is put in order
    width = int(rows.minute.max(initial=0)) + 1
    key = owner * width + rows.minute
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        rows, key, owner = rows.keep(order), key[order], owner[order]
    static, described = _descriptors(rows, owner, len(records))
    unknown_weight = ~described & (rows.code == _CODES["Weight"]) & (rows.value == UNKNOWN)
    notes["weights of -1, taken as not observed"] = int(unknown_weight.sum())
    measured = ~described & ~unknown_weight
    rows, key = rows.keep(measured), key[measured]

    def complain(n: int, _: int) -> DataError:
        what = f"several values of {list(VARIABLES)[rows.code[n]]} at minute {rows.minute[n]}"
        return DataError(f"record {rows.record[n]} has {what}", remedy="pass duplicates='mean', 'first' or 'last'")

    points = scatter((key,), rows.code, rows.value, len(VARIABLES), duplicates, complain)
    notes[f"values at the same time as another of the same variable ({duplicates})"] = points.merged
    at, values = key[points.first], points.values
    edges = np.searchsorted(at, np.arange(len(records) + 1) * width)
    times = (at % width) / MINUTES
    series = []
    for n in np.argsort(first, kind="stable").tolist():
        record, inside = int(records[n]), slice(edges[n], edges[n + 1])
        if outcomes is not None and record not in outcomes:
            raise DataError(f"record {record} has no outcome", column=_OUTCOME, remedy="use the outcomes of this set")
        label = None if outcomes is None else outcomes[record]
        series.append(Series(times[inside], values[inside], static[n], label, None, None, record))
    notes[EMPTY] = int((np.diff(edges) == 0).sum())
    if outcomes is not None and len(outcomes) > len(records):
        notes["outcomes of records that are not here"] = len(outcomes.keys() - set(records.tolist()))
    classes = None if outcomes is None else (0, 1)
    units = tuple(VARIABLES.values())
    schema = Schema(tuple(VARIABLES), units, static=DESCRIPTORS, classes=classes, time_unit="h")
    return SeriesSet(series, schema=schema, notes=notes)


def _grouped(record: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The different records in rising order, the first row of each, and for every row the number of its record."""
    steps = np.diff(record)
    if (steps < 0).any():
        return np.unique(record, return_index=True, return_inverse=True)
    first = np.append(0, np.flatnonzero(steps) + 1)[: len(record)]
    return record[first], first, np.repeat(np.arange(len(first)), np.diff(np.append(first, len(record))))


def _descriptors(rows: _Table, owner: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """[records, 5] static features, and which rows they were."""
    static = np.full((count, len(DESCRIPTORS)), np.nan, np.float32)
    admission = rows.minute == 0
    described = rows.code >= len(VARIABLES)
    late = described & ~admission
    if late.any():
        name = DESCRIPTORS[int(rows.code[np.argmax(late)]) - len(VARIABLES)]
        raise DataError(f"{name} of record {rows.record[np.argmax(late)]} is not at 00:00", column="Parameter")
    weights = np.flatnonzero(admission & (rows.code == _CODES["Weight"]))
    first_weight = weights[np.unique(owner[weights], return_index=True)[1]]
    which = np.flatnonzero(described)
    static[owner[which], rows.code[which] - len(VARIABLES)] = rows.value[which]
    static[owner[first_weight], len(DESCRIPTORS) - 1] = rows.value[first_weight]
    unknown = static == UNKNOWN
    rows.notes["descriptors of -1, taken as unknown"] = int(unknown.sum())
    static[unknown] = np.nan
    described[first_weight] = True
    return static, described

"""PhysioNet 2012: the first 48 hours of 12,000 stays in intensive care, and who survived them."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.catalog import registry, store
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.text import read_bytes, read_text
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

#: The 37 variables that change in time, with their units, in the order in which the files have them at each time.
VARIABLES: dict[str, str | None] = {
    "ALP": "IU/L",
    "ALT": "IU/L",
    "AST": "IU/L",
    "Albumin": "g/dL",
    "BUN": "mg/dL",
    "Bilirubin": "mg/dL",
    "Cholesterol": "mg/dL",
    "Creatinine": "mg/dL",
    "DiasABP": "mmHg",
    "FiO2": None,
    "GCS": None,
    "Glucose": "mg/dL",
    "HCO3": "mmol/L",
    "HCT": "%",
    "HR": "bpm",
    "K": "mEq/L",
    "Lactate": "mmol/L",
    "MAP": "mmHg",
    "MechVent": None,
    "Mg": "mmol/L",
    "NIDiasABP": "mmHg",
    "NIMAP": "mmHg",
    "NISysABP": "mmHg",
    "Na": "mEq/L",
    "PaCO2": "mmHg",
    "PaO2": "mmHg",
    "Platelets": "cells/nL",
    "RespRate": "bpm",
    "SaO2": "%",
    "SysABP": "mmHg",
    "Temp": "°C",
    "TroponinI": "µg/L",
    "TroponinT": "µg/L",
    "Urine": "mL",
    "WBC": "cells/nL",
    "Weight": "kg",
    "pH": None,
}
#: The descriptors, known on admission.
DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")
UNKNOWN = -1.0
MINUTES = 60
_HEADER = ("RecordID", "Time", "Parameter", "Value")
_OUTCOME = "In-hospital_death"
_CODES = {name: code for code, name in enumerate(VARIABLES)}
# the descriptors that are no variables follow; Weight as a descriptor is told apart by its place
_CODES |= {name: len(VARIABLES) + n for n, name in enumerate(DESCRIPTORS[:-1])}


def load_clinical(name: str, *, duplicates: str = "mean") -> SeriesSet:
    """One set of the challenge, from its one table or from the original folder of files.

    A series is a record: times in hours since admission, 37 channels (float32) with NaN where nothing was measured,
    five static features with NaN where unknown, and the label 1 for a death in hospital, 0 otherwise.

    The descriptors are the rows at 00:00 for Age, Gender, Height and ICUType, and the first one there for Weight; that
    row is no measurement and not in the channel Weight, all other rows for Weight are. Rows with -1 for a descriptor or
    a weight mean unknown and are counted. Records without any measurement stay, with length 0, and are counted.

    Args:
        name: ``PhysioNet2012-A``, ``-B`` or ``-C``.
        duplicates: what to do with several values of one variable at one time: ``mean``, ``first``, ``last`` or
            ``error``; the rows merged are counted.

    Example:
        >>> load_clinical("PhysioNet2012-A")  # doctest: +SKIP
        SeriesSet(4000 series, 37 channels)
    """
    info = registry.get(name, "clinical")
    if duplicates not in {"mean", "first", "last", "error"}:
        raise DataError(f"there is no policy {duplicates!r}", remedy="pass 'mean', 'first', 'last' or 'error'")
    letter = info.name[-1].lower()
    path = store.require(info, f"{info.folder}/set-{letter}.csv.gz", f"{info.folder}/set-{letter}")
    outcomes = read_outcomes(store.require(info, f"{info.folder}/Outcomes-{letter}.txt"))
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


def read_records(path: Path, outcomes: dict[int, int] | None, *, duplicates: str = "mean") -> SeriesSet:
    """From a table ``RecordID,Time,Parameter,Value``, or from a folder with a file ``RecordID.txt`` for each record."""
    table, sources = _joined(path) if path.is_dir() else (path, None)
    try:
        return _built(_parsed(table), outcomes, duplicates)
    except DataError as error:
        file, row = path, error.row
        if sources is not None and row is not None:
            file, row = sources.origin(row)
        raise DataError(error.problem, file=file, row=row, column=error.column, remedy=error.remedy) from None


@dataclass
class _Sources:
    """Which line of which file a line of the joined table was."""

    files: list[Path]
    first_rows: list[int]

    def origin(self, row: int) -> tuple[Path, int]:
        n = bisect.bisect_right(self.first_rows, row) - 1
        return self.files[n], row - self.first_rows[n] + 2


def _joined(folder: Path) -> tuple[bytes, _Sources]:
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError("there is no file RecordID.txt in this folder", file=folder, remedy="pass the folder set-a")
    pieces, first_rows, row = [",".join(_HEADER).encode()], [], 2
    for file in files:
        header, *lines = read_bytes(file).splitlines()
        if header.strip() != b"Time,Parameter,Value" or not file.stem.isdigit():
            raise DataError("the first line has to be Time,Parameter,Value, the name RecordID.txt", file=file, row=1)
        mark = file.stem.encode() + b","
        pieces += [mark + line for line in lines]
        first_rows.append(row)
        row += len(lines)
    return b"\n".join(pieces) + b"\n", _Sources(files, first_rows)


@dataclass
class _Rows:
    """The table as columns, and what was left out of it."""

    record: NDArray[np.int64]
    minute: NDArray[np.int64]
    code: NDArray[np.int64]
    value: NDArray[np.float32]
    notes: dict[str, int]

    def keep(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> _Rows:
        return _Rows(self.record[which], self.minute[which], self.code[which], self.value[which], self.notes)


def _parsed(table: Path | bytes) -> _Rows:
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
    rows = _Rows(frame["RecordID"].to_numpy(), minute, code, value, {})
    nameless = int((code == -3).sum())
    if nameless:
        rows.notes["rows without a parameter, left out"] = nameless
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
    """Where the fast reader failed: line by line."""
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
                return DataError(
                    f"{cell.decode('latin-1')!r} is not a number", row=row, column=name, remedy="repair it"
                )
    return DataError(f"not a table: {complaint}", remedy="download it again")


def _built(rows: _Rows, outcomes: dict[int, int] | None, duplicates: str) -> SeriesSet:
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
    if unknown_weight.any():
        notes["weights of -1, taken as not observed"] = int(unknown_weight.sum())
    measured = ~described & ~unknown_weight
    rows, key = rows.keep(measured), key[measured]
    new_point = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=new_point[1:])
    point = np.cumsum(new_point) - 1
    at = key[new_point]
    values = _scattered(rows, point, len(at), duplicates, notes)
    edges = np.searchsorted(at, np.arange(len(records) + 1) * width)
    times = (at % width) / MINUTES
    order_in_file = np.argsort(first, kind="stable")
    series = []
    for n in order_in_file.tolist():
        record, inside = int(records[n]), slice(edges[n], edges[n + 1])
        if outcomes is not None and record not in outcomes:
            raise DataError(f"record {record} has no outcome", column=_OUTCOME, remedy="use the outcomes of this set")
        label = None if outcomes is None else outcomes[record]
        series.append(Series(times[inside], values[inside], static[n], label, None, None, record))
    empty = int((np.diff(edges) == 0).sum())
    if empty:
        notes["records without a measurement, kept with length 0"] = empty
    if outcomes is not None and len(outcomes) > len(records):
        notes["outcomes of records that are not here"] = len(outcomes.keys() - set(records.tolist()))
    schema = Schema(
        channels=tuple(VARIABLES),
        units=tuple(VARIABLES.values()),
        static=DESCRIPTORS,
        classes=None if outcomes is None else (0, 1),
        time_unit="h",
    )
    return SeriesSet(series, schema=schema, notes=notes)


def _grouped(record: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The different records in rising order, the first row of each, and for every row the number of its record."""
    steps = np.diff(record)
    if (steps < 0).any():
        return np.unique(record, return_index=True, return_inverse=True)
    first = np.append(0, np.flatnonzero(steps) + 1)[: len(record)]
    return record[first], first, np.repeat(np.arange(len(first)), np.diff(np.append(first, len(record))))


def _descriptors(rows: _Rows, owner: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
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
    if unknown.any():
        rows.notes["descriptors of -1, taken as unknown"] = int(unknown.sum())
    static[unknown] = np.nan
    described[first_weight] = True
    return static, described


def _scattered(
    rows: _Rows, point: NDArray[np.int64], points: int, duplicates: str, notes: dict[str, int]
) -> NDArray[np.float32]:
    """[points, 37], NaN where nothing was measured."""
    values = np.full((points, len(VARIABLES)), np.nan, np.float32)
    flat = values.reshape(-1)
    cell = point * len(VARIABLES) + rows.code
    flat[cell] = rows.value
    order = np.arange(len(cell)) if (cell[1:] >= cell[:-1]).all() else np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order[1:]] == cell[order[:-1]]) + 1
    if not len(again):
        return values
    notes[f"values at the same time as another of the same variable ({duplicates})"] = len(again)
    involved = order[np.union1d(again, again - 1)]
    cells, begins, sizes = np.unique(cell[involved], return_index=True, return_counts=True)
    if duplicates == "error":
        n = involved[0]
        name = list(VARIABLES)[rows.code[n]]
        raise DataError(
            f"record {rows.record[n]} has several values of {name} at minute {rows.minute[n]}",
            remedy="pass duplicates='mean', 'first' or 'last'",
        )
    if duplicates == "mean":
        flat[cells] = np.add.reduceat(rows.value[involved].astype(np.float64), begins) / sizes
    elif duplicates == "first":
        flat[cells] = rows.value[involved[begins]]
    else:
        flat[cells] = rows.value[involved[begins + sizes - 1]]
    return values

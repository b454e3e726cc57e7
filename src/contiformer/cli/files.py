"""Series from a file of any kind that there is a reader for, by its ending."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from contiformer.data.errors import DataError
from contiformer.data.readers.arff import read_arff
from contiformer.data.readers.csv import read_csv
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.parquet import files_in, read_parquet
from contiformer.data.readers.text import read_bytes
from contiformer.data.readers.ts import read_ts
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.tables import Columns, with_targets

#: Endings, the last but ``.gz``.
ENDINGS = (".csv", ".tsv", ".parquet", ".ts", ".arff")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def ending_of(path: Path) -> str:
    """As in ``.csv`` for ``a.csv.gz``; a folder counts as Parquet."""
    name = path.name.lower().removesuffix(".gz")
    return ".parquet" if path.is_dir() else Path(name).suffix


def read_file(
    path: Path, columns: Columns, *, duplicates: str = "error", answers: bool = True
) -> tuple[SeriesSet, Columns]:
    """The series, and the columns with those that were not named filled in.

    Args:
        path: CSV, TSV, Parquet, ``.ts`` or ARFF, gzipped or not.
        columns: roles of the columns of a table; a table written by contiformer knows its own.
        duplicates: what to do with two rows of a series at one time.
        answers: label and targets have to be there; otherwise they are read where they are.
    """
    ending = ending_of(path)
    if ending not in ENDINGS:
        raise DataError(f"no reader for {ending or 'files without an ending'}", file=path, remedy=f"use {_listed()}")
    if ending == ".ts":
        return read_ts(path), columns
    if ending == ".arff":
        return read_arff(path, label=columns.label), columns
    if columns.time is None:
        data = read_parquet(path) if ending == ".parquet" else read_csv(path)
        return data, Columns("id", "time", data.channels, "label" if data.classes else None, data.schema.static)
    return _read_table(path, ending, columns, duplicates, answers)


def _read_table(path: Path, ending: str, columns: Columns, duplicates: str, answers: bool) -> tuple[SeriesSet, Columns]:
    names = _names(path, ending)
    label = columns.label if answers or columns.label in names else None
    targets = tuple(name for name in columns.targets if answers or name in names)
    values = columns.values
    if values is None:
        taken = {columns.id, columns.time, columns.label, *columns.static, *columns.targets}
        values = tuple(name for name in names if name not in taken)
    columns = replace(columns, values=values)
    roles: dict[str, Any] = {
        "id": columns.id,
        "values": [*values, *targets],
        "label": label,
        "static": columns.static,
        "duplicates": duplicates,
        "order": "appearance",
    }
    if ending == ".parquet":
        data = read_parquet(path, time=columns.time, **roles)
    else:
        data = read_csv(path, time=columns.time, separator=_SEPARATORS[ending], **roles)
    return with_targets(data, len(targets)), columns


def _names(path: Path, ending: str) -> list[str]:
    if ending == ".parquet":
        return guarded(lambda: pl.read_parquet(files_in(path)[0], n_rows=0), path).columns
    lines = read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n", 2)
    first = lines[1] if lines[0].startswith(b"# contiformer") and len(lines) > 1 else lines[0]
    return next(csv.reader([first.decode(errors="replace").rstrip("\r")], delimiter=_SEPARATORS[ending]), [])


def _listed() -> str:
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"

"""Series and event sequences from a file, read by its ending."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from contiformer.data.errors import DataError, naming_file
from contiformer.data.files import decode, read_bytes
from contiformer.data.readers.columns import Place, guarded
from contiformer.data.readers.csv import as_whole_numbers, read_csv, table
from contiformer.data.readers.jsonl import read_events as read_json_lines
from contiformer.data.readers.parquet import files_in, read_parquet
from contiformer.data.readers.ts import read_ts
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.event_tables import EventColumns, Events, read_events
from contiformer.estimators.frames import events_from
from contiformer.estimators.tables import Columns, with_targets

#: Endings, the last but ``.gz``.
SERIES_ENDINGS = (".csv", ".tsv", ".parquet", ".ts")
EVENT_ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def ending_of(path: Path) -> str:
    """As in ``.csv`` for ``a.csv.gz``; a folder counts as Parquet."""
    name = path.name.lower().removesuffix(".gz")
    return ".parquet" if path.is_dir() else Path(name).suffix


def _known_ending(path: Path, known: Sequence[str], reader: str) -> str:
    ending = ending_of(path)
    if ending not in known:
        remedy = f"use {', '.join(known[:-1])} or {known[-1]}"
        raise DataError(f"no {reader} for {ending or 'files without an ending'}", file=path, remedy=remedy)
    return ending


def read_series_file(
    path: Path, columns: Columns, *, duplicates: str = "error", answers: bool = True
) -> tuple[SeriesSet, Columns]:
    """The series, and the columns with those that were not named filled in.

    Args:
        path: CSV, TSV, Parquet or ``.ts``, gzipped or not.
        columns: roles of the columns of a table; a table written by contiformer knows its own.
        duplicates: policy for two rows of a series at one time.
        answers: label and targets have to be there; otherwise they are read where they are.
    """
    ending = _known_ending(path, SERIES_ENDINGS, "reader")
    if ending == ".ts":
        return read_ts(path), columns
    if columns.time is None:
        data = read_parquet(path) if ending == ".parquet" else read_csv(path)
        return data, Columns("id", "time", data.channels, "label" if data.classes else None, data.schema.static)
    present = columns.present_in(_column_names(path, ending), answers=answers)
    assert present.values is not None
    roles: dict[str, Any] = {
        "id": columns.id,
        "values": [*present.values, *present.targets],
        "label": present.label,
        "static": columns.static,
        "duplicates": duplicates,
        "order": "appearance",
    }
    if ending == ".parquet":
        data = read_parquet(path, time=columns.time, **roles)
    else:
        data = read_csv(path, time=columns.time, separator=_SEPARATORS[ending], **roles)
    return with_targets(data, len(present.targets)), replace(columns, values=present.values)


def _column_names(path: Path, ending: str) -> list[str]:
    if ending == ".parquet":
        return guarded(lambda: pl.read_parquet(files_in(path)[0], n_rows=0), path).columns
    lines = read_bytes(path).removeprefix(_BYTE_ORDER_MARK).split(b"\n", 2)
    first = lines[1] if lines[0].startswith(b"# contiformer") and len(lines) > 1 else lines[0]
    return next(csv.reader([first.decode(errors="replace").rstrip("\r")], delimiter=_SEPARATORS[ending]), [])


def read_event_file(path: Path, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The sequences in a file.

    Args:
        path: CSV, TSV or Parquet with a row for each event, or ``.jsonl`` with a sequence in each line; text may be
            gzipped.
        columns: of a table.
        type_names: of a model, whose numbers types then get.

    Raises:
        DataError: with file, row and column.
    """
    ending = _known_ending(path, EVENT_ENDINGS, "reader of events")
    with naming_file(path):
        if ending == ".jsonl":
            return read_events(read_json_lines(path), columns, type_names)
        place = Place(path, 1 if ending == ".parquet" else 2)
        data, dates = events_from(_event_frame(path, ending, columns), columns, type_names, place)
        return Events(data, "polars", dates)


def _event_frame(path: Path, ending: str, columns: EventColumns) -> pl.DataFrame:
    if ending == ".parquet":
        files = files_in(path)
        return guarded(lambda: pl.read_parquet(files, glob=False, hive_partitioning=path.is_dir()), path)
    data = read_bytes(path)
    if not data.isascii():
        decode(data, "utf-8", path)
    as_words = {} if columns.id is None else {columns.id: pl.String}
    frame = table(data.removeprefix(_BYTE_ORDER_MARK), path, _SEPARATORS[ending], as_words, first_row=2)
    return frame.with_columns(as_whole_numbers(frame[name]) for name in as_words if name in frame.columns)

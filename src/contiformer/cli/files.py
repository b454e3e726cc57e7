"""Series and event sequences from a file, read by its ending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from contiformer.data.errors import DataError, naming_file
from contiformer.data.readers.columns import Place, guarded
from contiformer.data.readers.csv import read_csv, read_table
from contiformer.data.readers.jsonl import read_events as read_json_lines
from contiformer.data.readers.parquet import files_in, read_parquet
from contiformer.data.readers.ts import read_ts
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.estimators.event_tables import EventColumns, Events, read_events
from contiformer.estimators.frames import events_from, series_from
from contiformer.estimators.labels import is_missing, labels_in
from contiformer.estimators.tables import Columns

#: Endings, the last but ``.gz``.
SERIES_ENDINGS = (".csv", ".tsv", ".parquet", ".ts")
EVENT_ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


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
    path: Path, columns: Columns, known: Schema | None = None, *, labelled: bool = True
) -> tuple[SeriesSet, Columns]:
    """The series, and the columns with those that were not named filled in; see :func:`estimators.tables.read`.

    A table written by contiformer knows the roles of its columns.
    """
    ending = _known_ending(path, SERIES_ENDINGS, "reader")
    if ending == ".ts":
        return read_ts(path), columns
    if columns.time is None:
        data = read_parquet(path) if ending == ".parquet" else read_csv(path)
        return data, Columns("id", "time", data.channels, "label" if data.classes else None, data.schema.static)
    with naming_file(path):
        frame, place = _frame(path, ending, columns.id)
        data = series_from(frame, columns, known, labelled=labelled, place=place)
    return data, replace(columns, values=columns.present_in(frame.columns).values)


def read_labels(path: Path, data: SeriesSet, columns: Columns) -> tuple[SeriesSet, Columns]:
    """The series with their labels of another table, and the columns with that of the labels."""
    ending = _known_ending(path, EVENT_ENDINGS[:3], "reader of labels")
    if columns.id is None:
        raise DataError("labels in a file of their own need ids", file=path, remedy="name the column of the ids in id=")
    with naming_file(path):
        frame = _frame(path, ending, columns.id)[0]
        label, labels = labels_in(frame, data, columns, "the file")
    known = sorted({one for one in labels if not is_missing(one)})
    classes = None if any(isinstance(one, float) for one in known) else tuple(known)
    series = [replace(one, label=None if is_missing(of) else of) for one, of in zip(data, labels, strict=True)]
    schema = replace(data.schema, classes=classes)
    return SeriesSet(series, schema=schema, notes=data.notes), replace(columns, label=label)


def read_event_file(path: Path, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The sequences in a table with a row for each event, or in ``.jsonl`` with a sequence in each line."""
    ending = _known_ending(path, EVENT_ENDINGS, "reader of events")
    with naming_file(path):
        if ending == ".jsonl":
            return read_events(read_json_lines(path), columns, type_names)
        frame, place = _frame(path, ending, columns.id)
        data, kind, zone, types = events_from(frame, columns, type_names, place)
        return Events(data, "polars", kind, zone, types=types)


def _frame(path: Path, ending: str, id: str | None) -> tuple[pl.DataFrame, Place]:
    """The table in a file, and where its rows are."""
    if ending == ".parquet":
        files = files_in(path)
        frame = guarded(lambda: pl.read_parquet(files, glob=False, hive_partitioning=path.is_dir()), path)
        return frame, Place(path)
    return read_table(path, id, _SEPARATORS[ending], detect=True)

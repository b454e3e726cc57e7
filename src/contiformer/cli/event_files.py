"""Events from a file: a table with a row for each event, or JSON lines with a sequence in each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from contiformer.cli.files import ending_of
from contiformer.data.errors import DataError
from contiformer.data.readers.csv import as_whole_numbers, table
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.jsonl import read_events as read_json_lines
from contiformer.data.readers.parquet import files_in
from contiformer.data.readers.place import Place
from contiformer.data.readers.text import decode, read_bytes
from contiformer.estimators.event_tables import EventColumns, Events, read_events

#: Endings, the last but ``.gz``.
ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_event_file(path: Path, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The sequences in a file.

    Args:
        path: CSV, TSV, Parquet or ``.jsonl``, the text gzipped or not.
        columns: of a table.
        type_names: of a model, whose numbers types then get.

    Raises:
        DataError: with file, row and column.
    """
    ending = ending_of(path)
    if ending not in ENDINGS:
        listed = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise DataError(
            f"no reader of events for {ending or 'files without an ending'}", file=path, remedy=f"use {listed}"
        )
    try:
        if ending == ".jsonl":
            return read_events(read_json_lines(path), columns, type_names)
        place = Place(path, 1 if ending == ".parquet" else 2)
        return read_events(_frame(path, ending, columns), columns, type_names, place)
    except DataError as error:
        raise error if error.file is not None else error.within(path) from None


def _frame(path: Path, ending: str, columns: EventColumns) -> pl.DataFrame:
    if ending == ".parquet":
        files = files_in(path)
        return guarded(lambda: pl.read_parquet(files, glob=False, hive_partitioning=path.is_dir()), path)
    data = read_bytes(path)
    if not data.isascii():
        decode(data, "utf-8", path)
    as_words = {} if columns.id is None else {columns.id: pl.String}
    frame = table(data.removeprefix(_BYTE_ORDER_MARK), path, _SEPARATORS[ending], as_words, first_row=2)
    return frame.with_columns(as_whole_numbers(frame[name]) for name in as_words if name in frame.columns)

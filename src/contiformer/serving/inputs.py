"""Records of JSON and CSV to the series or event sequences that a model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

import polars as pl

from contiformer.data.conversion import refuse_other_kind
from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.files import decode
from contiformer.data.readers.categories import columns_behind
from contiformer.data.readers.columns import Place, guarded
from contiformer.data.readers.csv import parse_table
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.event_tables import EventColumns
from contiformer.estimators.frames import events_from, series_from
from contiformer.estimators.scoring import required_columns
from contiformer.estimators.tables import Columns
from contiformer.serving.answers import schema_of_inputs

#: Rows of CSV begin below the line of column names.
_FIRST_LINE = 2
_BODY = "body"
_MOST_WHOLE = 2**63


class TableReader:
    """Reads tables in the columns that a model was trained on.

    Models that were trained on sets, lists or arrays have no names of columns: theirs are "id", "time", "type", and the
    names of the channels. Without a column "id" their table is one series.

    Args:
        estimator: the model.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        given = estimator.columns_
        self.named = given.time is not None
        self.events = isinstance(given, EventColumns)
        self.columns: Any
        if self.events:
            features = tuple(f"feature_{n}" for n in range(len(estimator.scaling_.feature_mean)))
            self.columns = given if self.named else EventColumns("id", "time", "type", features)
            return
        static = tuple(columns_behind(estimator.schema_.static, estimator.schema_.categories))
        own = given if self.named else Columns("id", "time", static=static)
        self.columns = replace(own, label=None, targets=())

    @property
    def wanted(self) -> list[str]:
        """The columns that are read; all others are ignored."""
        return required_columns(self.estimator, self.columns)

    def from_records(self, records: Sequence[Mapping[str, Any]]) -> SeriesSet | EventSet:
        """A row for each record, counted from 1; what a record does not have is missing."""
        if not records:
            raise DataError("there are no records", remedy="give at least one")
        columns = []
        for name in self.wanted:
            cells = [record.get(name) for record in records]
            # a column that no record has is not there, rather than missing everywhere
            if any(cell is not None for cell in cells) or any(name in record for record in records):
                columns.append(_column(name, cells))
        return guarded(lambda: self._parse(pl.DataFrame(columns), Place()), None)

    def from_csv(self, body: bytes) -> SeriesSet | EventSet:
        """A row for each line below the names of the columns; lines are counted from 1."""
        body = body.removeprefix(b"\xef\xbb\xbf")
        if not body.strip():
            raise DataError("the body is empty", remedy="send a line of column names, and rows below")
        if not body.isascii():
            decode(body, "utf-8", _BODY)
        frame = parse_table(body, _BODY, self.columns.id, first_row=_FIRST_LINE)
        return guarded(lambda: self._parse(frame, Place(None, _FIRST_LINE)), None)

    def _parse(self, frame: pl.DataFrame, place: Place) -> SeriesSet | EventSet:
        columns = self.columns
        if not self.named and columns.id not in frame.columns:
            columns = replace(columns, id=None)
        if self.events:
            known = self.estimator.type_names_
            if not self.named and columns.type not in frame.columns and len(known) == 1:
                columns = replace(columns, type=None)
            data, kind, *_ = events_from(frame, columns, known, place)
            refuse_other_kind(kind, self.estimator.time_kind_)
            return data
        found = series_from(frame, columns, self.estimator.schema_, labelled=False, place=place)
        refuse_other_kind(found.schema.time_kind, self.estimator.schema_.kind)
        return found.described(schema_of_inputs(self.estimator))


def _column(name: str, cells: list[Any]) -> pl.Series:
    """A column of numbers, of words, or of true and false; the first cell that is something else is named."""
    if set(map(type, cells)) <= {float, NoneType}:
        return pl.Series(name, cells, dtype=pl.Float64)
    first: type | None = None
    for row, cell in enumerate(cells, 1):
        if cell is None:
            continue
        if not isinstance(cell, str | int | float):
            problem = f"a {'list' if isinstance(cell, list) else 'nested object'} where a number or a word is expected"
            raise DataError(problem, row=row, column=name, remedy="give one value in each cell")
        kind = str if isinstance(cell, str) else float
        first = first or kind
        if kind is not first:
            words = ("word", "number") if kind is str else ("number", "word")
            problem = f"is a {words[0]}, and those above are {words[1]}s"
            raise DataError(problem, row=row, column=name, remedy="use one of them in all rows")
        if isinstance(cell, int) and not -_MOST_WHOLE <= cell < _MOST_WHOLE:
            raise DataError("is too large a number", row=row, column=name, remedy="ids may be words")
        if isinstance(cell, str) and not _encodable(cell):
            raise DataError("is no valid Unicode", row=row, column=name, remedy="repair the text")
    if first is str:
        return pl.Series(name, cells, dtype=pl.String)
    if any(isinstance(cell, float) for cell in cells):
        return pl.Series(name, [None if cell is None else float(cell) for cell in cells], dtype=pl.Float64)
    if any(isinstance(cell, bool) for cell in cells):
        cells = [None if cell is None else int(cell) for cell in cells]
    return pl.Series(name, cells, dtype=None if first is None else pl.Int64)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

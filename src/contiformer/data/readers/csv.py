"""CSV files with one row per measurement."""

from __future__ import annotations

import csv
import io
from typing import Any

import polars as pl

from contiformer.data.errors import DataError, PathText, naming_file
from contiformer.data.files import decode, read_bytes, write_text
from contiformer.data.readers.columns import MISSING, Place, guarded
from contiformer.data.readers.frames import KEY, column_types, describe, from_frame, read_described, to_frame
from contiformer.data.series_set import SeriesSet

_COMMENT = f"# {KEY}: "


def read_csv(
    path: PathText, *, time: str | None = None, separator: str = ",", encoding: str = "utf-8", **roles: Any
) -> SeriesSet:
    """Series from a CSV file, gzipped or not, with a line of column names.

    A file from :func:`write_csv` describes its columns itself; for any other, name the column of the times and pass the
    other roles as for :func:`contiformer.data.from_frame`: ``id``, ``values``, ``variable``, ``value``, ``label``,
    ``static``, ``duplicates``, ``order``.

    Example:
        >>> from pathlib import Path
        >>> from contiformer.data import read_csv
        >>> _ = Path("labs.csv").write_text("patient,hour,pulse\\na,0.5,80\\na,2,84\\nb,1,71\\n")
        >>> read_csv("labs.csv", id="patient", time="hour").ids
        ['a', 'b']
    """
    with naming_file(path):
        if time is not None:
            found, place = read_table(path, roles.get("id"), separator, encoding)
            return from_frame(found, time=time, place=place, **roles)
        text, data, first_row = _contents(path, encoding)
        if text is None:
            raise DataError("the time column is not named", remedy="pass time=, and id= if there are several series")
        found = table(data, path, ",", column_types(text), first_row, missing=())
        return read_described(found, text, Place(path, first_row))


def read_table(
    path: PathText, id: str | None = None, separator: str = ",", encoding: str = "utf-8", *, detect: bool = False
) -> tuple[pl.DataFrame, Place]:
    """The table in a file, columns of numbers as numbers and all others as text, and where its rows are.

    Ids that are written as whole numbers are numbers; 007 is not, or it would become the same as 7. ``detect``: take
    another separator if the column names have that one.
    """
    _, data, first_row = _contents(path, encoding)
    separator = separator_of(data, separator) if detect else separator
    return parse_table(data, path, id, separator, first_row), Place(path, first_row)


def parse_table(
    data: bytes, path: PathText, id: str | None = None, separator: str = ",", first_row: int = 2
) -> pl.DataFrame:
    """The table in a text in UTF-8, see :func:`read_table`; ``path`` names it in errors."""
    found = table(data, path, separator, {} if id is None else {id: pl.String}, first_row)
    return found.with_columns(as_whole_numbers(found[id])) if id in found.columns else found


def _contents(path: PathText, encoding: str) -> tuple[str | None, bytes, int]:
    """The description of the columns, the table in UTF-8, and the number of its first row of data."""
    data = read_bytes(path)
    if encoding.lower().replace("-", "") != "utf8":
        data = decode(data, encoding, path).encode()
    elif not data.isascii():
        decode(data, "utf-8", path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.startswith(_COMMENT.encode()):
        return None, data, 2
    head, _, data = data.partition(b"\n")
    return head.decode().removeprefix(_COMMENT), data, 3


def as_whole_numbers(column: pl.Series) -> pl.Series:
    """Text as whole numbers, if all of it is written as such."""
    whole = column.cast(pl.Int64, strict=False)
    same = (whole.cast(pl.String) == column) | column.is_null()
    return whole if bool(same.fill_null(False).all()) else column


def table(
    data: bytes,
    path: PathText,
    separator: str,
    types: dict[str, Any],
    first_row: int,
    missing: tuple[str, ...] = MISSING[1:],
) -> pl.DataFrame:
    """The table in a text in UTF-8, with the types of some columns; ``path`` names it in errors."""
    data = data.rstrip(b"\r\n")
    if len(separator.encode()) != 1:
        raise DataError(f"separator {separator!r} is not one byte", file=path, remedy='pass "," or ";" or "\\t"')
    names = _header(data, separator, path)
    other = separator_of(data, separator)
    if other != separator:
        raise DataError(f"columns are separated by {other!r}", file=path, row=1, remedy=f"pass separator={other!r}")
    types = {name: kind for name, kind in types.items() if name in names}
    options: dict[str, Any] = {"separator": separator, "null_values": list(missing), "raise_if_empty": False}

    def attempt(**how: Any) -> pl.DataFrame:
        return guarded(lambda: pl.read_csv(data, **how, **options), path)

    try:
        found = attempt(infer_schema_length=10_000, schema_overrides=types)
    except DataError:
        # a word among numbers, further down than polars looked, or a ragged row
        _refuse_ragged(data, separator, len(names), path, first_row)
        try:
            found = attempt(infer_schema_length=None, schema_overrides=types)
        except DataError:
            found = attempt(infer_schema=False)
    if found.width == len(names):
        found.columns = names
    if found.height == 0:
        raise DataError("there are no rows below the column names", file=path)
    if found.width and found.to_series(-1).null_count():
        # polars fills short rows up in silence
        _refuse_ragged(data, separator, len(names), path, first_row)
    return found


def separator_of(data: bytes, usual: str) -> str:
    """The usual separator, or the one that the column names have instead of it."""
    line = data.split(b"\n", 1)[0]
    return usual if usual.encode() in line else next((one for one in ";\t,|" if one.encode() in line), usual)


def _header(data: bytes, separator: str, path: PathText) -> list[str]:
    line = data.split(b"\n", 1)[0].decode().rstrip("\r")
    try:
        names = next(csv.reader([line], delimiter=separator), [])
    except csv.Error as error:
        raise DataError(f"the column names cannot be read ({error})", file=path, row=1) from None
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise DataError("two columns have this name", file=path, row=1, column=twice, remedy="rename one of them")
    return names


def _refuse_ragged(data: bytes, separator: str, width: int, path: PathText, first_row: int) -> None:
    rows = csv.reader(io.StringIO(data.decode(), newline=""), delimiter=separator)
    try:
        for fields in rows:
            if len(fields) not in (0, width):
                problem = f"{len(fields)} fields where the column names are {width}"
                remedy = "quote fields that contain the separator"
                raise DataError(problem, file=path, row=rows.line_num + first_row - 2, remedy=remedy)
    except csv.Error as error:
        row = rows.line_num + first_row - 2
        raise DataError(f"cannot be read ({error})", file=path, row=row, remedy="repair the line") from None


def write_csv(data: SeriesSet, path: PathText) -> None:
    """One row per point, below a comment that describes the columns; gzipped when the name ends in ``.gz``."""
    write_text(path, f"{_COMMENT}{describe(data)}\n{to_frame(data).write_csv()}")

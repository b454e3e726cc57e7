"""Parquet files and folders of them, read whole."""

from __future__ import annotations

import io
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from contiformer.data.errors import DataError
from contiformer.data.readers.frames import from_frame, to_frame
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.layout import KEY, describe, read_described
from contiformer.data.readers.place import Place
from contiformer.data.readers.text import write_bytes
from contiformer.data.series_set import SeriesSet

#: Rows of a group in the files that we write.
GROUP_ROWS = 65_536


def read_parquet(path: str | PathLike[str], *, time: str | None = None, **roles: Any) -> SeriesSet:
    """Series from a Parquet file, or from all files in a folder (``name=value`` folders become columns).

    A file from :func:`write_parquet` says itself what its columns are; for any other pass ``time`` and the other
    arguments of :func:`contiformer.data.from_frame`. Rows in errors count through all files of a folder.
    """
    files = files_in(path)
    if time is None:
        return _described(files)
    table = guarded(lambda: pl.read_parquet(files, glob=False, hive_partitioning=Path(path).is_dir()), path)
    return named(lambda: from_frame(table, time=time, place=Place(path), **roles), path)


def write_parquet(data: SeriesSet, path: str | PathLike[str]) -> None:
    """One row per point, with a description of the columns in the file's metadata."""
    packed = io.BytesIO()
    to_frame(data).write_parquet(packed, row_group_size=GROUP_ROWS, metadata={KEY: describe(data)})
    write_bytes(path, packed.getvalue())


def _described(files: list[Path]) -> SeriesSet:
    """Files that we wrote, one after another."""
    parts = [_one_described(file) for file in files]
    for file, part in zip(files, parts, strict=True):
        if part.schema != parts[0].schema:
            raise DataError(f"is described otherwise than {files[0].name}", file=file, remedy="read them one by one")
    series = [one for part in parts for one in part]
    ids = [one.id for one in series if one.id is not None]
    if len(set(ids)) < len(ids):
        raise DataError("an id occurs in two files", file=files[0].parent, remedy="read them one by one")
    return SeriesSet(series, schema=parts[0].schema)


def _one_described(file: Path) -> SeriesSet:
    text = guarded(lambda: pl.read_parquet_metadata(file), file).get(KEY)
    if text is None:
        raise DataError(
            "which column is the time?", file=file, remedy="pass time=, and id= if there are several series"
        )
    table = guarded(lambda: pl.read_parquet(file, glob=False, hive_partitioning=False), file)
    return named(lambda: read_described(table, text, Place(file)), file)


def files_in(path: str | PathLike[str]) -> list[Path]:
    """The file, or the Parquet files of a folder in the order of their paths."""
    place = Path(path)
    try:
        files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place] if place.is_file() else []
    except (OSError, ValueError):
        files = []
    if not files:
        raise DataError("there is no Parquet file here", file=path, remedy="check the path")
    return files


def named(read: Callable[[], SeriesSet], path: str | PathLike[str]) -> SeriesSet:
    """What is read, with the file in an error that has none yet."""
    try:
        return read()
    except DataError as error:
        raise error if error.file is not None else error.within(path) from None

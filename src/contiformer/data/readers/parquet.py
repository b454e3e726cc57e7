"""Parquet files and folders of them, whole or block by block."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Int64

from contiformer.data.errors import DataError
from contiformer.data.readers.columns import pick
from contiformer.data.readers.frames import from_frame, to_frame
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.layout import KEY, describe, read_described
from contiformer.data.readers.place import Place
from contiformer.data.readers.text import write_bytes
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Points that are read together, and rows of a group in the files that we write.
BLOCK_POINTS = 65_536
#: Rows of the id column that are looked at together while the index is made.
_INDEX_ROWS = 1_000_000
_BLOCKS_KEPT = 2


def read_parquet(path: str | PathLike[str], *, time: str | None = None, **roles: Any) -> SeriesSet:
    """Series from a Parquet file, or from all files in a folder (``name=value`` folders become columns).

    A file from :func:`write_parquet` says itself what its columns are; for any other pass ``time`` and the other
    arguments of :func:`contiformer.data.from_frame`.
    """
    files = _files(path)
    text = _description(files[0])
    if time is None and text is not None:
        table = guarded(lambda: pl.read_parquet(files, hive_partitioning=False), path)
        return _named(lambda: read_described(table, text, Place(path)), path)
    if time is None:
        raise DataError(
            "which column is the time?", file=path, remedy="pass time=, and id= if there are several series"
        )
    table = guarded(lambda: pl.read_parquet(files, hive_partitioning=Path(path).is_dir()), path)
    return _named(lambda: from_frame(table, time=time, place=Place(path), **roles), path)


def write_parquet(data: SeriesSet, path: str | PathLike[str]) -> None:
    """One row per point, with a description of the columns in the file's metadata."""
    packed = io.BytesIO()
    to_frame(data).write_parquet(packed, row_group_size=BLOCK_POINTS, metadata={KEY: describe(data)})
    write_bytes(path, packed.getvalue())


def scan_parquet(
    path: str | PathLike[str],
    *,
    time: str,
    id: str,
    block_points: int = BLOCK_POINTS,
    **roles: Any,
) -> SeriesSet:
    """The same, read block by block when series are asked for: for sets larger than memory.

    Rows of one id have to follow each other in one file. Only the column of ids is read at first. Blocks of about
    ``block_points`` rows are read at a time; give ``SeriesSet.blocks`` to the sampler, so that it visits one block
    after another.
    """
    source = ParquetSource(_files(path), {"time": time, "id": id, **roles}, block_points)
    first = source.block(0)
    schema = first.schema
    label = roles.get("label")
    if label is not None and schema.classes is not None:
        # one block need not have all classes
        every = guarded(lambda: pl.scan_parquet(source.files).select(pl.col(label).unique().sort()).collect(), path)
        schema = replace(schema, classes=tuple(every[label].to_list()))
    return SeriesSet(source, schema=schema, notes=first.notes)


class ParquetSource:
    """Series of Parquet files by position; the last blocks stay in memory."""

    def __init__(self, files: list[Path], roles: dict[str, Any], block_points: int) -> None:
        self.files, self.roles = files, roles
        self.lengths, self._file, self._offset = _index(files, roles["id"])
        self.blocks = _blocks(self.lengths, self._file, block_points)
        self._first = np.searchsorted(self.blocks, np.arange(self.blocks[-1] + 2))
        self._kept: OrderedDict[int, SeriesSet] = OrderedDict()

    def __len__(self) -> int:
        """The number of series."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> Series:
        """Read one series, and its neighbours with it."""
        number = int(self.blocks[index])
        return self.block(number)[int(index - self._first[number])]

    def block(self, number: int) -> SeriesSet:
        """All series of a block."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        while len(self._kept) >= _BLOCKS_KEPT:
            self._kept.popitem(last=False)
        start, stop = int(self._first[number]), int(self._first[number + 1])
        file, offset = self.files[self._file[start]], int(self._offset[start])
        rows = int(self.lengths[start:stop].sum())
        table = guarded(lambda: pl.scan_parquet(file).slice(offset, rows).collect(), file)
        place = Place(file, offset + 1)
        read = _named(lambda: from_frame(table, order="appearance", place=place, **self.roles), file)
        self._kept[number] = read
        return read


def _index(
    files: list[Path], name: str
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Rows, file and offset of every series, from the id columns alone."""
    seen: dict[Any, tuple[int, int]] = {}
    rows: list[list[int]] = []
    for number, file in enumerate(files):
        height = _height(file, name)
        for start in range(0, height, _INDEX_ROWS):
            runs = _ids(file, name, start).rle()
            at = start
            for run in runs.to_list():
                key, length = run["value"], run["len"]
                if key is None:
                    raise DataError("the id is missing", file=file, row=at + 1, column=name, remedy="fill it in")
                if rows and at == start and at > 0 and seen.get(key) == (number, len(rows) - 1):
                    rows[-1][0] += length
                elif key in seen:
                    raise DataError(
                        f"series {key!r} comes back after others",
                        file=file,
                        row=at + 1,
                        column=name,
                        remedy="sort by id, so that a series is in one place, or use read_parquet",
                    )
                else:
                    seen[key] = (number, len(rows))
                    rows.append([length, number, at])
                at += length
    if not rows:
        raise DataError("there are no rows", file=files[0])
    lengths, numbers, offsets = np.array(rows, np.int64).T
    return lengths, numbers, offsets


def _height(file: Path, name: str) -> int:
    columns = guarded(lambda: pl.scan_parquet(file).collect_schema(), file)
    pick(pl.DataFrame(schema=columns), name, Place(file))
    return int(guarded(lambda: pl.scan_parquet(file).select(pl.len()).collect(), file).item())


def _ids(file: Path, name: str, start: int) -> pl.Series:
    return guarded(lambda: pl.scan_parquet(file).select(name).slice(start, _INDEX_ROWS).collect(), file)[name]


def _blocks(lengths: Int64[np.ndarray, " n"], files: Int64[np.ndarray, " n"], points: int) -> Int64[np.ndarray, " n"]:
    """Neighbours in one file until a block has its points."""
    result = np.empty(len(lengths), np.int64)
    block, filled = 0, 0
    for n, length in enumerate(lengths):
        if n and (files[n] != files[n - 1] or filled + length > points):
            block, filled = block + 1, 0
        result[n] = block
        filled += int(length)
    return result


def _files(path: str | PathLike[str]) -> list[Path]:
    place = Path(path)
    try:
        files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place] if place.is_file() else []
    except (OSError, ValueError):
        files = []
    if not files:
        raise DataError("there is no Parquet file here", file=path, remedy="check the path")
    return files


def _description(file: Path) -> str | None:
    return guarded(lambda: pl.read_parquet_metadata(file), file).get(KEY)


def _named(read: Callable[[], SeriesSet], path: str | PathLike[str]) -> SeriesSet:
    try:
        return read()
    except DataError as error:
        raise error if error.file is not None else error.within(path) from None

"""Parquet files and folders of them, read block by block: for sets larger than memory."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Int64

from contiformer.data.errors import DataError
from contiformer.data.readers.columns import pick, words
from contiformer.data.readers.frames import from_frame
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.parquet import files_in, named
from contiformer.data.readers.place import Place
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Points that are read together.
BLOCK_POINTS = 65_536
#: Rows that are looked at together while the index is made.
_INDEX_ROWS = 1_000_000
_BLOCKS_KEPT = 2


def scan_parquet(
    path: str | PathLike[str],
    *,
    time: str,
    id: str,
    block_points: int = BLOCK_POINTS,
    **roles: Any,
) -> SeriesSet:
    """The same as :func:`read_parquet`, read when series are asked for, and in the order of files and rows.

    Rows of one id have to follow each other in one file; times have to be numbers or dates, ids words or whole numbers.
    Only the columns of ids and times are looked at first. Blocks of about ``block_points`` rows are read at a time; a
    :class:`~contiformer.data.Loader` visits one block after another.
    """
    if "order" in roles:
        raise DataError("scan_parquet keeps the order of the files", remedy="leave out order=")
    files = files_in(path)
    source = ParquetSource(files, {"time": time, "id": id, **roles}, block_points, Path(path).is_dir())
    schema = source.block(0).schema
    label = roles.get("label")
    if label is not None and schema.classes is not None:
        # one block need not have all classes
        every = pl.concat([words(source.scan(file, [label]), Place(file)) for file in files])
        schema = replace(schema, classes=tuple(every.unique().sort().to_list()))
    return SeriesSet(source, schema=schema, notes=source.notes)


@dataclass(frozen=True)
class _Index:
    """For every series: rows in the table, points, number of the file, and the first row in it."""

    rows: Int64[np.ndarray, " n"]
    points: Int64[np.ndarray, " n"]
    file: Int64[np.ndarray, " n"]
    offset: Int64[np.ndarray, " n"]
    merged: int


class ParquetSource:
    """Series of Parquet files by position; the last blocks stay in memory."""

    def __init__(self, files: list[Path], roles: dict[str, Any], block_points: int, partitioned: bool) -> None:
        self.files, self.roles, self.partitioned = files, roles, partitioned
        self._process = os.getpid()
        self._kept: OrderedDict[int, SeriesSet] = OrderedDict()
        self._index = self._make_index()
        self.lengths = self._index.points
        self.notes = {}
        if self._index.merged:
            self.notes[f"rows merged at equal times, by {roles['duplicates']}"] = self._index.merged
        self.blocks = _blocks(self._index, block_points)
        self._first = np.searchsorted(self.blocks, np.arange(self.blocks[-1] + 2))
        # every block has the channels of the whole, also where it lacks some or a file has them in another order
        if "variable" in roles:
            names = [words(self.scan(file, [roles["variable"]]), Place(file)).cast(pl.String) for file in files]
            self.roles = {"channels": pl.concat(names).unique().sort().to_list(), **roles}
        else:
            self.roles = {"values": list(self.block(0).channels), **roles}
        self._kept.clear()

    def __len__(self) -> int:
        """The number of series."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> Series:
        """Read one series, and its neighbours with it."""
        number = int(self.blocks[index])
        return self.block(number)[int(index - self._first[number])]

    def __getstate__(self) -> dict[str, Any]:
        """Without the blocks in memory, for another process."""
        return {**vars(self), "_kept": OrderedDict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In the process it is in now."""
        vars(self).update(state, _process=os.getpid())

    def block(self, number: int) -> SeriesSet:
        """All series of a block."""
        if os.getpid() != self._process:
            # the threads of polars do not survive a fork: reading would wait for them for ever
            raise DataError(
                "a forked process cannot read Parquet",
                remedy='use contiformer.data.Loader, or DataLoader(multiprocessing_context="spawn")',
            )
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        while len(self._kept) >= _BLOCKS_KEPT:
            self._kept.popitem(last=False)
        start, stop = int(self._first[number]), int(self._first[number + 1])
        file, offset = self.files[self._index.file[start]], int(self._index.offset[start])
        rows = int(self._index.rows[start:stop].sum())
        table = guarded(lambda: self._lazy(file).slice(offset, rows).collect(), file)
        place = Place(file, offset + 1)
        read = named(lambda: from_frame(table, order="appearance", place=place, **self.roles), file)
        self._kept[number] = read
        return read

    def scan(self, file: Path, columns: list[str]) -> pl.Series:
        """One column of a file: the different values in it."""
        return guarded(lambda: self._lazy(file).select(pl.col(columns).unique()).collect(), file).to_series()

    def _lazy(self, file: Path) -> pl.LazyFrame:
        return pl.scan_parquet(file, glob=False, hive_partitioning=self.partitioned)

    def _make_index(self) -> _Index:
        name, time, variable = self.roles["id"], self.roles["time"], self.roles.get("variable")
        merging = self.roles.get("duplicates", "error") in {"mean", "first", "last"}
        seen: dict[Any, int] = {}
        found: list[list[int]] = []
        merged = 0
        for number, file in enumerate(self.files):
            self._check_columns(file, [name, time, *([variable] if variable else [])])
            height = int(guarded(lambda file=file: self._lazy(file).select(pl.len()).collect(), file).item())  # type: ignore[misc]
            for start in range(0, height, _INDEX_ROWS):
                part = self._rows(file, start)
                ids = words(part[name], Place(file, start + 1))
                runs = part.select(run=ids.rle_id(), time=pl.col(time), what=pl.col(variable or time))
                counted = runs.group_by("run", maintain_order=True).agg(
                    pl.len().alias("rows"),
                    pl.col("time").n_unique().alias("times"),
                    pl.struct("time", "what").n_unique().alias("cells"),
                )
                heads = ids.gather(np.flatnonzero(np.diff(runs["run"].to_numpy().astype(np.int64), prepend=-1)))
                at = start
                for key, (_, rows, times, cells) in zip(heads.to_list(), counted.iter_rows(), strict=True):
                    points = times if variable or merging else rows
                    if at == start and start and seen.get(key) == len(found) - 1 and found[-1][2] == number:
                        if variable or merging:
                            raise DataError(
                                f"series {key!r} is too long to be read in parts", file=file, remedy="use read_parquet"
                            )
                        found[-1][0] += rows
                        found[-1][1] += points
                    elif key in seen:
                        raise DataError(
                            f"series {key!r} comes back after others",
                            file=file,
                            row=at + 1,
                            column=name,
                            remedy="sort by id, so that a series is in one place, or use read_parquet",
                        )
                    else:
                        seen[key] = len(found)
                        found.append([rows, points, number, at])
                    merged += rows - cells if merging else 0
                    at += rows
        if not found:
            raise DataError("there are no rows", file=self.files[0])
        rows, points, numbers, offsets = np.array(found, np.int64).T
        return _Index(rows, points, numbers, offsets, merged)

    def _rows(self, file: Path, start: int) -> pl.DataFrame:
        wanted = [self.roles[role] for role in ("id", "time", "variable") if role in self.roles]
        columns = list(dict.fromkeys(wanted))
        return guarded(lambda: self._lazy(file).select(columns).slice(start, _INDEX_ROWS).collect(), file)

    def _check_columns(self, file: Path, wanted: list[str]) -> None:
        schema = guarded(lambda: self._lazy(file).collect_schema(), file)
        for name in wanted:
            pick(pl.DataFrame(schema=schema), name, Place(file))
        for name, what in ((wanted[1], "times as text"), (wanted[0], "ids with fractions")):
            kind = schema[name]
            if (kind == pl.String and name == wanted[1]) or (kind.is_float() and name == wanted[0]):
                raise DataError(
                    f"{what} are read differently from block to block",
                    file=file,
                    column=name,
                    remedy="use read_parquet",
                )


def _blocks(index: _Index, points: int) -> Int64[np.ndarray, " n"]:
    """Neighbours in one file until a block has its points."""
    result = np.empty(len(index.rows), np.int64)
    block, filled = 0, 0
    for n, rows in enumerate(index.rows):
        if n and (index.file[n] != index.file[n - 1] or filled + rows > points):
            block, filled = block + 1, 0
        result[n] = block
        filled += int(rows)
    return result

"""Parquet files and folders of them, read whole or block by block for sets larger than memory."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Int64

from contiformer.data.errors import DataError, PathText, naming_file
from contiformer.data.files import write_bytes
from contiformer.data.readers.categories import as_text, columns_behind
from contiformer.data.readers.columns import Place, guarded, pick, words
from contiformer.data.readers.frames import KEY, describe, from_frame, read_described, to_frame
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Rows of a group in the files that we write.
GROUP_ROWS = 65_536
#: Points that are read together.
BLOCK_POINTS = 65_536
#: Rows that are looked at together while the index is made.
_INDEX_ROWS = 1_000_000
_BLOCKS_KEPT = 2


def read_parquet(path: PathText, *, time: str | None = None, **roles: Any) -> SeriesSet:
    """Series from a Parquet file, or from all files in a folder (``name=value`` folders become columns).

    A file from :func:`write_parquet` says itself what its columns are; for any other pass ``time`` and the other
    arguments of :func:`contiformer.data.from_frame`. Rows in errors count through all files of a folder.

    Example:
        >>> import polars as pl
        >>> from contiformer.data import read_parquet
        >>> pl.DataFrame({"id": ["a", "a", "b"], "t": [0, 1, 0], "x": [1.0, 2.0, 3.0]}).write_parquet("x.parquet")
        >>> read_parquet("x.parquet", id="id", time="t").lengths.tolist()
        [2, 1]
    """
    files = files_in(path)
    if time is None:
        return _described(files)
    table = guarded(lambda: pl.read_parquet(files, glob=False, hive_partitioning=Path(path).is_dir()), path)
    with naming_file(path):
        return from_frame(table, time=time, place=Place(path), **roles)


def write_parquet(data: SeriesSet, path: PathText) -> None:
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
        remedy = "pass time=, and id= if there are several series"
        raise DataError("the time column is not named", file=file, remedy=remedy)
    table = guarded(lambda: pl.read_parquet(file, glob=False, hive_partitioning=False), file)
    with naming_file(file):
        return read_described(table, text, Place(file))


def files_in(path: PathText) -> list[Path]:
    """The file, or the Parquet files of a folder in the order of their paths."""
    place = Path(path)
    try:
        files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place] if place.is_file() else []
    except (OSError, ValueError):
        files = []
    if not files:
        raise DataError("there is no Parquet file here", file=path, remedy="check the path")
    return files


def scan_parquet(path: PathText, *, time: str, id: str, block_points: int = BLOCK_POINTS, **roles: Any) -> SeriesSet:
    """The same as :func:`read_parquet`, read when series are asked for, and in the order of files and rows.

    Rows of one id have to follow each other in one file; times have to be numbers or dates, ids words or whole numbers.
    Only the columns of ids and times are looked at first. Blocks of about ``block_points`` rows are read at a time; a
    :class:`~contiformer.data.Loader` visits one block after another.

    Example:
        >>> import polars as pl
        >>> from contiformer.data import scan_parquet
        >>> pl.DataFrame({"id": ["a", "a", "b"], "t": [0, 1, 0], "x": [1.0, 2.0, 3.0]}).write_parquet("x.parquet")
        >>> data = scan_parquet("x.parquet", id="id", time="t")
        >>> data[1].values.tolist()
        [[3.0]]
    """
    if "order" in roles:
        raise DataError("scan_parquet keeps the order of the files", remedy="leave out order=")
    files = files_in(path)
    source = ParquetSource(files, {"time": time, "id": id, **roles}, block_points, Path(path).is_dir())
    schema = source.block(0).schema
    label = roles.get("label")
    if label is not None and schema.classes is not None:
        # one block need not have all classes
        every = pl.concat([words(source.scan(file, [label]), Place(file), labels=True) for file in files])
        schema = replace(schema, classes=tuple(every.drop_nulls().unique().sort().to_list()))
    return SeriesSet(source, schema=schema, notes=source.notes)


class ParquetSource:
    """Series of Parquet files by position; the last blocks stay in memory."""

    def __init__(self, files: list[Path], roles: dict[str, Any], block_points: int, partitioned: bool) -> None:
        self.files, self.roles, self.partitioned = files, roles, partitioned
        self._process = os.getpid()
        self._kept: OrderedDict[int, SeriesSet] = OrderedDict()
        (self._rows, self.lengths, self._file, self._offset), merged = self._make_index()
        self.notes = {f"rows merged at equal times, by {roles.get('duplicates')}": merged}
        self.blocks = self._make_blocks(block_points)
        self._first = np.searchsorted(self.blocks, np.arange(self.blocks[-1] + 2))
        # every block has the channels of the whole, also where it lacks some or a file has them in another order
        schema = self.block(0).schema
        if "variable" in roles:
            self.roles = {"channels": self._texts(roles["variable"]), **roles}
        else:
            self.roles = {"values": columns_behind(schema.channels, schema.categories), **roles}
        if not isinstance(roles.get("categorical"), Mapping):
            self.roles["categorical"] = {name: self._texts(name) for name, _ in schema.categories}
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
            problem = "a forked process cannot read Parquet"
            remedy = 'use contiformer.data.Loader, or DataLoader(multiprocessing_context="spawn")'
            raise DataError(problem, remedy=remedy)
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        while len(self._kept) >= _BLOCKS_KEPT:
            self._kept.popitem(last=False)
        start, stop = int(self._first[number]), int(self._first[number + 1])
        file, offset = self.files[self._file[start]], int(self._offset[start])
        rows = int(self._rows[start:stop].sum())
        table = guarded(lambda: self._lazy(file).slice(offset, rows).collect(), file)
        with naming_file(file):
            read = from_frame(table, order="appearance", place=Place(file, offset + 1), **self.roles)
        self._kept[number] = read
        return read

    def scan(self, file: Path, columns: list[str]) -> pl.Series:
        """One column of a file: the different values in it."""
        return guarded(lambda: self._lazy(file).select(pl.col(columns).unique()).collect(), file).to_series()

    def _texts(self, column: str) -> list[str]:
        """The different texts in a column of all files, sorted."""
        every = pl.concat([as_text(self.scan(file, [column])) for file in self.files])
        return every.drop_nulls().unique().sort().to_list()

    def _lazy(self, file: Path) -> pl.LazyFrame:
        return pl.scan_parquet(file, glob=False, hive_partitioning=self.partitioned)

    def _make_index(self) -> tuple[Int64[np.ndarray, "4 n"], int]:
        """For every series its rows, points, number of the file and first row there; and how many rows are merged."""
        name, time, variable = self.roles["id"], self.roles["time"], self.roles.get("variable")
        merging = self.roles.get("duplicates", "error") in {"mean", "first", "last"}
        seen: dict[Any, int] = {}
        found: list[list[int]] = []
        merged = 0
        for number, file in enumerate(self.files):
            self._check_columns(file, [name, time, *([variable] if variable else [])])
            height = int(guarded(self._lazy(file).select(pl.len()).collect, file).item())
            columns = self._lazy(file).select(list(dict.fromkeys([name, time, variable or time])))
            for start in range(0, height, _INDEX_ROWS):
                part = guarded(columns.slice(start, _INDEX_ROWS).collect, file)
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
                            problem = f"series {key!r} is too long to be read in parts"
                            raise DataError(problem, file=file, remedy="use read_parquet")
                        found[-1][0] += rows
                        found[-1][1] += points
                    elif key in seen:
                        problem = f"series {key!r} comes back after others"
                        remedy = "sort by id, so that a series is in one place, or use read_parquet"
                        raise DataError(problem, file=file, row=at + 1, column=name, remedy=remedy)
                    else:
                        seen[key] = len(found)
                        found.append([rows, points, number, at])
                    merged += rows - cells if merging else 0
                    at += rows
        if not found:
            raise DataError("there are no rows", file=self.files[0])
        return np.array(found, np.int64).T, merged

    def _make_blocks(self, points: int) -> Int64[np.ndarray, " n"]:
        """Neighbours in one file until a block has its points."""
        result = np.empty(len(self._rows), np.int64)
        block, filled = 0, 0
        for n, rows in enumerate(self._rows.tolist()):
            if n and (self._file[n] != self._file[n - 1] or filled + rows > points):
                block, filled = block + 1, 0
            result[n] = block
            filled += rows
        return result

    def _check_columns(self, file: Path, wanted: list[str]) -> None:
        schema = guarded(lambda: self._lazy(file).collect_schema(), file)
        for name in wanted:
            pick(pl.DataFrame(schema=schema), name, Place(file))
        for name, what in ((wanted[1], "times as text"), (wanted[0], "ids with fractions")):
            kind = schema[name]
            if (kind == pl.String and name == wanted[1]) or (kind.is_float() and name == wanted[0]):
                problem = f"{what} are read differently from block to block"
                raise DataError(problem, file=file, column=name, remedy="use read_parquet")

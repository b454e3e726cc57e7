"""Tables larger than memory as blocks of whole series, whatever the order of their rows and the number of files.

The ids are counted first. Blocks are then consecutive series in the order of the ids, so that they depend on the data
and the size alone. Rows are sorted into blocks by way of a folder: memory holds a chunk of the input, the ids with
their counts, and one block (above 256 blocks: a 256th of the rows).
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.errors import DataError, PathText
from contiformer.data.files import decode
from contiformer.data.readers.columns import Place, guarded, pick, words
from contiformer.data.readers.csv import as_whole_numbers, separator_of, table

SEPARATORS = {".csv": ",", ".tsv": "\t"}
#: Rows of a block, and rows or bytes that are read from a file at a time.
BLOCK_ROWS = 65_536
_CHUNK_ROWS = 131_072
_CHUNK_BYTES = 1 << 23
#: A record that is longer than so many chunks has a quote that is never closed.
_LONGEST_RECORD = 8
_BUCKETS = 256
_ID, _FILE, _ROW, _BLOCK, _BUCKET = (f"contiformer {name}" for name in ("id", "file", "row", "block", "bucket"))


@dataclass(frozen=True)
class Origin(Place):
    """Location of rows that come from several files: file and row number of each."""

    files: Sequence[PathText] = ()
    file_numbers: NDArray[Any] = None  # type: ignore[assignment]
    rows: NDArray[Any] = None  # type: ignore[assignment]

    def of_row(self, at: int) -> tuple[PathText | None, int]:
        """File and row number of position ``at`` (from 0)."""
        return self.files[int(self.file_numbers[at])], int(self.rows[at])

    def only(self, chosen: NDArray[np.bool_]) -> Origin:
        """The location of some of the rows."""
        return replace(self, file_numbers=self.file_numbers[chosen], rows=self.rows[chosen])


@dataclass(frozen=True)
class Block:
    """Rows of whole series: the number of the block, the number of its first series, the rows and their location."""

    number: int
    first: int
    frame: pl.DataFrame
    place: Origin


def find_tables(given: str) -> list[Path]:
    """The Parquet or CSV files that a path, a folder or a pattern names, in the order of their paths.

    Files and folders whose names begin with ``.`` or ``_`` are left out of folders.
    """
    path = Path(given)
    if path.is_file():
        found = [path]
    else:
        inside = path.rglob("*") if path.is_dir() else map(Path, glob.glob(given, recursive=True))
        base = len(path.parts) if path.is_dir() else 0
        found = sorted(
            file
            for file in inside
            if file.is_file() and not any(part.startswith((".", "_")) for part in file.parts[base:] if part != "..")
        )
        found = [file for file in found if _ending(file) in (*SEPARATORS, ".parquet")]
    kinds = {_ending(file) == ".parquet" for file in found}
    if not found:
        remedy = 'pass a file, a folder, or a pattern in quotes such as "data/*.parquet"'
        raise DataError("there is no Parquet or CSV file here", file=given, remedy=remedy)
    if len(kinds) > 1:
        remedy = 'pass a pattern in quotes, such as "data/*.parquet"'
        raise DataError("there are both Parquet and CSV files here", file=given, remedy=remedy)
    for file in found:
        if _ending(file) not in (*SEPARATORS, ".parquet"):
            raise DataError("cannot be read in blocks", file=file, remedy="use .csv, .tsv, .csv.gz or .parquet")
    return found


def _ending(file: Path) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


class Blocks:
    """The series of some files in blocks of about ``block_rows`` rows.

    Args:
        files: from :func:`find_tables`.
        id: column that tells which series a row belongs to; None: all rows of all files are one series.
        columns: that are read, the id among them.
        block_rows: rows in a block, unless one series has more.
        answers: rows that each series counts for beside its own: so many are predicted.
    """

    def __init__(
        self,
        files: Sequence[Path],
        id: str | None,
        columns: Sequence[str],
        block_rows: int = BLOCK_ROWS,
        answers: int = 0,
    ) -> None:
        self.files, self.id, self.columns = list(files), id, list(columns)
        self._types: dict[str, Any] = {} if id is None else {id: pl.String}
        self._index = self._counted()
        if not len(self._index):
            raise DataError("there are no rows", file=self.files[0])
        rows = self._index["rows"].to_numpy().astype(np.int64)
        self.rows, self.series = int(rows.sum()), len(rows)
        total = np.concatenate([[0], np.cumsum(rows + answers)])
        edges = [0]
        while edges[-1] < self.series:
            full = int(np.searchsorted(total, total[edges[-1]] + block_rows, "right")) - 1
            edges.append(max(full, edges[-1] + 1))
        #: The number of the first series of each block, and the number of all.
        self.edges = np.array(edges)
        self._rows = np.add.reduceat(rows, self.edges[:-1])

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.edges) - 1

    def size(self, number: int) -> tuple[int, int]:
        """The rows and the series of a block."""
        return int(self._rows[number]), int(self.edges[number + 1] - self.edges[number])

    def read(self, wanted: Sequence[int], folder: Path) -> Iterator[Block]:
        """The blocks of these ascending numbers, sorted by way of files in ``folder``."""
        width = -(-len(wanted) // _BUCKETS)
        of_block = np.full(len(self), -1)
        of_block[list(wanted)] = np.arange(len(wanted)) // max(width, 1)
        number = np.repeat(np.arange(len(self)), np.diff(self.edges))
        key = self._index.select(pl.col("id").alias(_ID), pl.Series(_BLOCK, number)).filter(of_block[number] >= 0)
        pieces: dict[int, list[Path]] = {}
        for n, file in enumerate(self.files):
            for frame, start in self._chunks(file, self.columns):
                ids = pl.lit(None, pl.Int64) if self.id is None else self._key(frame[self.id])
                rows = frame.with_columns(ids.alias(_ID), pl.lit(n, pl.UInt32).alias(_FILE)).with_row_index(_ROW, start)
                rows = rows.join(key, on=_ID, nulls_equal=True, maintain_order="left")
                rows = rows.with_columns(pl.Series(_BUCKET, of_block[rows[_BLOCK].to_numpy()]))
                for (bucket,), piece in rows.partition_by(_BUCKET, as_dict=True, include_key=False).items():
                    known = pieces.setdefault(bucket, [])
                    known.append(folder / f"{bucket}-{len(known)}.parquet")
                    piece.write_parquet(known[-1], compression="lz4", statistics=False)
        for bucket in sorted(pieces):
            together = [pl.read_parquet(path, glob=False) for path in pieces[bucket]]
            rows = guarded(partial(pl.concat, together, how="vertical_relaxed"), self.files[0])
            if self.id is not None:
                rows = rows.with_columns(pl.col(_ID).alias(self.id))
            for path in pieces[bucket]:
                path.unlink()
            for part in rows.sort(_BLOCK, _ID, _FILE, _ROW).partition_by(_BLOCK, maintain_order=True):
                at = int(part[_BLOCK][0])
                place = Origin(None, 1, self.files, part[_FILE].to_numpy(), part[_ROW].to_numpy())
                yield Block(at, int(self.edges[at]), part.select(self.columns), place)

    def _counted(self) -> pl.DataFrame:
        """The ids in order, with the number of their rows; empty ids come first."""
        found: list[pl.DataFrame] = []
        types = dict(self._types)
        text = _ending(self.files[0]) != ".parquet"
        for file in self.files:
            for frame, _ in self._chunks(file, self.columns if text or self.id is None else [self.id]):
                if text:
                    types = self._widened(types, frame)
                ids = pl.Series([None] * len(frame), dtype=pl.Int64) if self.id is None else _ids(frame[self.id], file)
                found.append(ids.alias("id").value_counts(name="rows"))
                if sum(map(len, found)) > 2 * len(found[0]) + _CHUNK_ROWS:
                    found = [_summed(found, file)]
        index = _summed(found, self.files[0]) if found else pl.DataFrame({"id": [], "rows": []})
        ids = index["id"]
        if text and self.id is not None:
            ids = as_whole_numbers(ids)
        elif ids.dtype.is_float():
            whole = ids.cast(pl.Int64, strict=False)
            ids = whole if bool((whole == ids).fill_null(True).all()) else ids.cast(pl.String)
        self._types, self._kind = types, ids.dtype
        return index.with_columns(ids).sort("id")

    def _key(self, column: pl.Series) -> pl.Series:
        return words(column, Place(), labels=True).cast(self._kind)

    def _widened(self, types: dict[str, Any], frame: pl.DataFrame) -> dict[str, Any]:
        """For every column of text the type that holds all chunks, as if they were read at once."""
        wider = dict(types)
        for name, kind in frame.schema.items():
            known = types.get(name)
            if name != self.id and frame[name].null_count() < len(frame):
                numbers = {known, kind} <= {pl.Int64, pl.Float64}
                wider[name] = kind if known in (None, kind) else pl.Float64() if numbers else pl.String()
        return wider

    def _chunks(self, file: Path, columns: Sequence[str]) -> Iterator[tuple[pl.DataFrame, int]]:
        """Parts of a file, and the number of the first row of each."""
        if _ending(file) != ".parquet":
            for header, data, row in _records(file):
                separator = separator_of(header, SEPARATORS[_ending(file)])
                frame = table(header + data, file, separator, self._types, first_row=row)
                yield frame.select([pick(frame, name, Place(file)) for name in columns]), row
            return
        lazy = pl.scan_parquet(file, glob=False, hive_partitioning=True)
        empty = pl.DataFrame(schema=guarded(lazy.collect_schema, file))
        chosen = lazy.select([pick(empty, name, Place(file)).name for name in columns])
        height = int(guarded(lazy.select(pl.len()).collect, file).item())
        for start in range(0, height, _CHUNK_ROWS):
            yield guarded(chosen.slice(start, _CHUNK_ROWS).collect, file), start + 1


def _ids(column: pl.Series, file: Path) -> pl.Series:
    """Ids as the readers of tables have them; empty ones are told when their block is read."""
    ids = words(column, Place(file), labels=True)
    return ids.cast(pl.Int64) if ids.dtype in (pl.Boolean, pl.Null) else ids


def _summed(counts: list[pl.DataFrame], file: Path) -> pl.DataFrame:
    every = guarded(lambda: pl.concat(counts, how="vertical_relaxed"), file)
    return every.group_by("id").agg(pl.col("rows").sum())


def _records(file: Path) -> Iterator[tuple[bytes, bytes, int]]:
    """Whole records of a CSV file, gzipped or not: the line of column names, some records, the row of the first one."""
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            source: IO[bytes] = gzip.open(raw) if packed else raw  # type: ignore[assignment] # noqa: SIM115
            header, row = source.readline().removeprefix(b"\xef\xbb\xbf"), 2
            if header.startswith(b"# contiformer"):
                header, row = source.readline(), 3
            if not header.strip():
                raise DataError("the file is empty", file=file)
            _check_text(header, file, row - 1)
            header = header.rstrip(b"\r\n") + b"\n"
            rest = b""
            while read := source.read(_CHUNK_BYTES):
                rest += read
                end = _last_record(rest)
                if end < 0 and len(rest) > _LONGEST_RECORD * _CHUNK_BYTES:
                    raise DataError("a quote is not closed", file=file, row=row, remedy="repair the line")
                data, rest = rest[: end + 1], rest[end + 1 :]
                if data.strip():
                    _check_text(data, file, row)
                    yield header, data, row
                row += data.count(b"\n")
            if rest.strip():
                _check_text(rest, file, row)
                yield header, rest, row
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", file=file, remedy="check or copy it again") from None


def _last_record(data: bytes) -> int:
    """The position of the last line end that is not between quotes, -1 where there is none."""
    end = data.rfind(b"\n")
    quotes = data.count(b'"', 0, max(end, 0))
    while end >= 0 and quotes % 2:
        before = data.rfind(b"\n", 0, end)
        quotes -= data.count(b'"', max(before, 0), end)
        end = before
    return end


def _check_text(data: bytes, file: Path, row: int) -> None:
    if not data.isascii():
        try:
            decode(data, "utf-8", file)
        except DataError as error:
            at = None if error.row is None else error.row + row - 1
            raise DataError(error.problem, file=file, row=at, remedy="convert it to UTF-8") from None

"""Results of cells: published in one CSV per experiment and protocol, and a JSON file each until then."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from contiformer.data import DataError, locked, read_text, write_text
from reproduction.experiments import Budget, Cell, Protocol

#: A result: the fields of its cell, ``version`` of the protocol, ``metrics``, ``details``, ``budget``,
#: ``configuration``, ``seconds``, ``machine``; and ``stale`` (why) and ``taken_from`` (which cell) where they apply.
Row = dict[str, Any]

_CELL = tuple(field.name for field in fields(Cell))
#: Columns of text that may be empty, for a row without the entry.
_OPTIONAL = ("stale", "taken_from")
#: Facts about the machine, words and numbers; the commit may be unknown.
_FACTS = ("cpu", "system", "python", "torch", "contiformer", "commit", "date")
_NUMBERS = ("threads", "load", "free_memory_mb", "compiled_kernels")
#: Columns of JSON: numbers and objects.
_JSON = ("seed", "version", "seconds", "details", "configuration")
_BEFORE = (*_CELL, "version", "stale")
_AFTER = ("seconds", "budget", "taken_from", *_FACTS, *_NUMBERS, "details", "configuration")
# details may hold a picture
csv.field_size_limit(2**30)


@dataclass(frozen=True)
class Store:
    """Results in a folder, which several processes and machines may share.

    Attributes:
        folder: of all results; those of a quick run lie apart from the full ones, and are not published.
        budget: of the cells in this store.
    """

    folder: Path
    budget: Budget = "full"

    @property
    def cells(self) -> Path:
        """The folder of unpublished cells."""
        return self.folder / ("cells" if self.budget == "full" else "quick")

    def path(self, cell: Cell) -> Path:
        """The file of an unpublished cell."""
        return self.cells / cell.path

    def table_path(self, table: str, protocol: Protocol) -> Path:
        """The file of published cells."""
        return self.folder / f"{table}-{protocol}.csv"

    def __contains__(self, cell: Cell) -> bool:
        """Whether there is a result, stale or not."""
        return self.read(cell) is not None

    def read(self, cell: Cell) -> Row | None:
        """The newest result of a cell, None where there is none."""
        path, published = self.path(cell), self._published(cell.table).get(cell)
        return _newer(published, _parse(path)) if path.is_file() else published

    def rows(self, table: str) -> list[Row]:
        """The newest result of every cell of a table, sorted by cell."""
        found = dict(self._published(table))
        for path in (self.cells / table).rglob("*.json"):
            row = _parse(path)
            found[cell_of(row)] = _newer(found.get(cell_of(row)), row)
        return [found[cell] for cell in sorted(found)]

    def write(self, cell: Cell, row: Row) -> None:
        """Keep a result in a file of its own."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        # a line for each entry: small, and its changes can be read
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in {**asdict(cell), **row}.items())
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may run the cell: False while another process does."""
        with locked(self.path(cell), wait=False) as free:
            yield free

    def publish(self, table: str) -> list[Path]:
        """Merge the unpublished cells of a table into its CSV files, and remove their own files.

        Returns:
            The CSV files that were written.
        """
        if self.budget != "full":
            raise ValueError("quick results are not published")
        files = sorted((self.cells / table).rglob("*.json"))
        read = {path: _parse(path) for path in files}
        written = []
        for protocol in get_args(Protocol):
            own = {path: row for path, row in read.items() if row["protocol"] == protocol}
            if not own:
                continue
            target = self.table_path(table, protocol)
            with locked(target):
                found = _read_table(target)
                for row in own.values():
                    found[cell_of(row)] = _newer(found.get(cell_of(row)), row)
                write_text(target, to_csv(found.values()))
            written.append(target)
            for path, row in own.items():
                with suppress(FileNotFoundError):
                    # one that was run again meanwhile stays
                    if _parse(path) == row:
                        path.unlink()
        return written

    def _published(self, table: str) -> Mapping[Cell, Row]:
        if self.budget != "full":
            return {}
        found: dict[Cell, Row] = {}
        for protocol in get_args(Protocol):
            found |= _read_table(self.table_path(table, protocol))
        return found


def cell_of(row: Row) -> Cell:
    """The cell of a row."""
    return Cell(*(row[name] for name in _CELL))


def to_csv(rows: Iterable[Row]) -> str:
    """Rows as a table: sorted by cell, one column for each metric, every number to its last digit.

    Raises:
        ValueError: a row has an entry without a column, or a metric the name of another column.
    """
    ordered = sorted(rows, key=cell_of)
    metrics = list(dict.fromkeys(name for row in ordered for name in row["metrics"]))
    columns = [*_BEFORE, *metrics, *_AFTER]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    if len(set(columns)) < len(columns):
        raise ValueError(f"a metric has the name of another column: {', '.join(sorted(metrics))}")
    writer.writeheader()
    for row in ordered:
        flat = {name: value for name, value in row.items() if name not in ("metrics", "machine")}
        flat |= {name: json.dumps(flat[name]) for name in _JSON}
        flat |= {name: json.dumps(value) for name, value in row["metrics"].items()}
        flat |= {name: value if name in _FACTS else json.dumps(value) for name, value in row["machine"].items()}
        writer.writerow(flat)
    return text.getvalue()


def from_csv(text: str) -> list[Row]:
    """Rows of a table that :func:`to_csv` wrote, equal to what they were."""
    return [_row(line) for line in csv.DictReader(io.StringIO(text, newline=""), strict=True)]


def _row(line: dict[str, str]) -> Row:
    row: Row = {name: line[name] for name in (*_CELL, "budget")}
    row |= {name: json.loads(line[name]) for name in _JSON}
    row |= {name: line[name] for name in _OPTIONAL if line[name]}
    known = {*_BEFORE, *_AFTER}
    row["metrics"] = {name: json.loads(value) for name, value in line.items() if name not in known and value}
    facts = {name: line[name] for name in _FACTS if line[name]}
    row["machine"] = {"commit": None, **facts, **{name: json.loads(line[name]) for name in _NUMBERS if line[name]}}
    return _checked(row)


def _read_table(path: Path) -> dict[Cell, Row]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return {}
    return dict(_read_version(path, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=64)
def _read_version(path: Path, _time: int, _size: int) -> Mapping[Cell, Row]:
    try:
        return {cell_of(row): row for row in from_csv(read_text(path))}
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise DataError(f"the table is damaged ({error})", file=path, remedy="restore it, for example by git") from None


def _parse(path: Path) -> Row:
    try:
        return _checked(dict(json.loads(path.read_bytes())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"the result is damaged ({error})", file=path, remedy="remove the file; its cell is then run again"
        ) from None


def _checked(row: Row) -> Row:
    cell_of(row)
    if not all(isinstance(value, int | float) for value in row["metrics"].values()):
        raise TypeError("a metric that is no number")
    return row


def _newer(published: Row | None, row: Row) -> Row:
    """The row of the higher protocol version; of equal ones the one that is not stale, then the later one."""

    def age(one: Row) -> tuple[int, bool, str]:
        return one.get("version", 0), not one.get("stale"), str(one.get("machine", {}).get("date", ""))

    return published if published is not None and age(published) > age(row) else row

"""Files of finished cells: one each, whole or not there, and nobody works on a cell twice at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contiformer.data.catalog.lock import nobody_else
from contiformer.data.errors import DataError
from contiformer.data.readers.text import write_text
from contiformer.experiments.cell import Budget, Cell

Row = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """Results in a folder, which several processes and machines may share.

    Attributes:
        folder: of all results; those of a quick run lie apart from the full ones.
        budget: of the cells in this store.
    """

    folder: Path
    budget: Budget = "full"

    @property
    def cells(self) -> Path:
        """The folder of the files."""
        return self.folder / ("cells" if self.budget == "full" else "quick")

    def path(self, cell: Cell) -> Path:
        """Of the file of a cell."""
        return self.cells / cell.path

    def __contains__(self, cell: Cell) -> bool:
        """Whether it is finished."""
        return self.path(cell).is_file()

    def read(self, cell: Cell) -> Row | None:
        """What was measured, None where nothing was."""
        return self._parse(self.path(cell)) if cell in self else None

    def write(self, cell: Cell, row: Row) -> None:
        """Keep a result."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        # a line for each entry: small, and its changes can be read
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in {**asdict(cell), **row}.items())
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    def rows(self, table: str) -> list[Row]:
        """All results of a table, in the order of their names."""
        return [self._parse(path) for path in sorted((self.cells / table).rglob("*.json"))]

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may do the cell: False where it is done, or another process is at it."""
        with nobody_else(self.path(cell)) as free:
            yield free and cell not in self

    @staticmethod
    def _parse(path: Path) -> Row:
        try:
            row = json.loads(path.read_bytes())
            cell_of(row)
            if not all(isinstance(value, int | float) for value in row["metrics"].values()):
                raise TypeError("a metric that is no number")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"the result is damaged ({error})", file=path, remedy="remove the file; its cell is then run again"
            ) from None
        return dict(row)


def cell_of(row: Row) -> Cell:
    """Which cell a row is of."""
    return Cell(row["table"], row["data"], row["setting"], row["model"], row["seed"], row["protocol"])

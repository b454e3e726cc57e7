"""Where in a table something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError


@dataclass(frozen=True)
class Place:
    """A table: its file, and the number that its first data row has there."""

    file: str | PathLike[str] | None = None
    first_row: int = 1

    def error(
        self, problem: str, *, at: int | None = None, column: str | None = None, remedy: str | None = None
    ) -> DataError:
        """An error at position ``at`` (from 0) of a column."""
        row = None if at is None else at + self.first_row
        return DataError(problem, file=self.file, row=row, column=column, remedy=remedy)

    def row(self, at: int) -> int:
        """The number of the row at this position."""
        return at + self.first_row


def first(mask: NDArray[np.bool_]) -> int:
    """Position of the first True."""
    return int(np.argmax(mask))

"""DataError, the one error for bad input, and suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike, fspath

PathText = str | PathLike[str]


def printable(text: str) -> str:
    """The text with control characters written out, so that names in a stranger's file cannot command a terminal.

    Example:
        >>> from contiformer.data.errors import printable
        >>> print(printable("pulse\\x1b[2J"))
        pulse\\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str) -> str:
    """A word of a file as it is shown in an error, the end of a long one left out."""
    return repr(text if len(text) <= 40 else f"{text[:30]}...")


class DataError(ValueError):
    """Bad input: what is wrong, where (file, row, column), and what to do about it.

    Rows are counted from 1 as an editor shows them: line numbers of a text file, data rows of a table.

    Example:
        >>> from contiformer.data import DataError
        >>> raise DataError("time 'noon' is not a number", file="a.csv", row=7, column="hour", remedy="give hours")
        Traceback (most recent call last):
        contiformer.data.errors.DataError: a.csv, row 7, column 'hour': time 'noon' is not a number; give hours
    """

    def __init__(
        self,
        problem: str,
        *,
        file: PathText | None = None,
        row: int | None = None,
        column: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else fspath(file)
        self.row = row
        self.column = column
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        place = [self.file] if self.file is not None else []
        place += [f"row {self.row}"] if self.row is not None else []
        place += [f"column {self.column!r}"] if self.column is not None else []
        where = f"{', '.join(place)}: " if place else ""
        return printable(f"{where}{self.problem}" + (f"; {self.remedy}" if self.remedy else ""))

    def within(self, file: PathText) -> DataError:
        """The same error, with the file it happened in."""
        return DataError(self.problem, file=file, row=self.row, column=self.column, remedy=self.remedy)


@contextmanager
def naming_file(file: PathText) -> Iterator[None]:
    """Add the file to every DataError of the block that names none."""
    try:
        yield
    except DataError as error:
        raise error if error.file is not None else error.within(file) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name, as in ``did you mean 'heart_rate'? There are: heart_rate, pH``."""
    names = [str(k) for k in known]
    close = get_close_matches(str(name), names, n=1)
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    there = f"there are: {shown}" if names else "there are none"
    return f"did you mean {close[0]!r}? {there[0].upper()}{there[1:]}" if close else there

"""The paper's printed numbers, in our names and without its factors of 10; misprints are left as they are.

The one exception: THP's accuracy on StackOverflow, printed as -0.468, has lost its sign.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Printed:
    """A number of the paper and its standard deviation, None where it prints none."""

    value: float
    std: float | None


def printed(table: str, data: str, setting: str, model: str, metric: str) -> Printed | None:
    """The paper's number for a cell, None where it prints none.

    Tables that are means over folds have no settings of their own.

    Example:
        >>> from reproduction.paper import printed
        >>> printed("events", "BookOrder", "fold1", "contiformer", "log_likelihood").value
        -0.27
    """
    found = _values()
    return found.get((table, data, setting, model, metric)) or found.get((table, data, "", model, metric))


@cache
def _values() -> dict[tuple[str, ...], Printed]:
    lines = Path(__file__).with_name("paper.csv").read_text(encoding="utf-8").splitlines()
    return {
        (row["table"], row["data"], row["setting"], row["model"], row["metric"]): Printed(
            float(row["value"]), float(row["std"]) if row["std"] else None
        )
        for row in csv.DictReader(lines)
    }

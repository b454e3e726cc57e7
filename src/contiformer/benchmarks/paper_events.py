"""The paper's table of event prediction."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

#: Printed as -0.468 in the paper, which is no accuracy.
_MISPRINT = ("StackOverflow", "thp", "accuracy")


@cache
def paper_values() -> dict[tuple[str, str, str], float]:
    """By data set, model and metric, in our names; times are in the unit of the paper.

    Example:
        >>> paper_values()["BookOrder", "contiformer", "log_likelihood"]
        -0.27
    """
    lines = files("contiformer.benchmarks").joinpath("paper_events.csv").read_text(encoding="utf-8").splitlines()
    found = {(row["data"], row["model"], row["metric"]): float(row["value"]) for row in csv.DictReader(lines)}
    return {cell: abs(value) if cell == _MISPRINT else value for cell, value in found.items()}

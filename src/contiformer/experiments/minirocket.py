"""A strong and cheap classifier that the paper leaves out, beside ours on the UEA sets."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from contiformer.experiments.results import Place, Results
from contiformer.experiments.summary import spread
from contiformer.experiments.tables import NOTHING, about
from contiformer.reports.sheet import Entry, Sheet

#: The table that its numbers belong to.
TABLE = "uea"
_NOTE = (
    "MiniRocket: aeon's classifier with its defaults on the same sets, points dropped at random and interpolated back "
    "to the full grid, 3 seeds; kept in experiments/minirocket.csv."
)


@cache
def accuracies() -> dict[Place, float]:
    """Mean accuracy of three seeds, where it was measured."""
    lines = files("contiformer.experiments").joinpath("minirocket.csv").read_text(encoding="utf-8").splitlines()
    return {(row["data"], row["setting"]): float(row["accuracy"]) for row in csv.DictReader(lines)}


def minirocket_sheet(results: Results) -> Sheet | None:
    """Our model, the paper's number for it, and MiniRocket, over the cells that ours and MiniRocket have."""
    if results.experiment.name != TABLE:
        return None
    metric, ours = results.experiment.metrics[0], results.experiment.ours
    means = {
        place: spread(list(values.values()))
        for place in results.places
        if place in accuracies() and (values := results.values(place, ours, metric))
    }
    if not means:
        return None
    printed = {place: results.printed(place, ours, metric) for place in means}
    lines = []
    for place, one in means.items():
        said, other = printed[place], accuracies()[place]
        mine = Entry(f"{one.mean:{metric.form}} ({one.n})", strong=one.mean >= other)
        paper = Entry(NOTHING, faint=True) if said is None else Entry(f"{said.value:{metric.form}}")
        theirs = Entry(f"{other:{metric.form}}", strong=other >= one.mean)
        lines.append(
            (Entry(place[0]), Entry(place[1]), mine, theirs, Entry(f"{one.mean - other:+{metric.form}}"), paper)
        )
    here, there = np.mean([one.mean for one in means.values()]), np.mean([accuracies()[place] for place in means])
    numbers = [said.value for said in printed.values() if said is not None]
    last = Entry(f"{np.mean(numbers):{metric.form}}") if len(numbers) == len(means) else Entry(NOTHING, faint=True)
    total = (Entry(f"{here:{metric.form}}", bool(here >= there)), Entry(f"{there:{metric.form}}", bool(there >= here)))
    lines.append((Entry("mean"), Entry(f"{len(means)} cells"), *total, Entry(f"{here - there:+{metric.form}}"), last))
    heads = ("data", "setting", f"{ours} (repeats)", "MiniRocket (3)", "difference", f"{ours} in the paper")
    return Sheet(f"{about(results, metric)}: beside MiniRocket", heads, tuple(lines), 2, notes=(_NOTE,))

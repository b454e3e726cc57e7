"""What it is worth to choose the epoch by the test data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contiformer.experiments.experiment import Metric
from contiformer.experiments.results import Results
from contiformer.reports.sheet import Entry, Sheet

#: Before the name of a metric: of the last epoch of the same training.
LAST = "last_"
_NOTE = (
    "Left: the best test epoch against the last epoch of the same training, which nobody chose. Right: the paper's "
    "protocol against the honest one, only repeats that were run under both; where a set has no validation part (UEA), "
    "the honest one also learns from less, as it keeps some training data for choosing. A gain below 0 is a loss."
)


def selection_sheet(honest: Results, paper: Results) -> Sheet | None:
    """For each model: means over all repeats that have both figures, and their difference."""
    metric = honest.experiment.metrics[0]
    within = {model: _pairs(paper, paper, model, metric.key, LAST + metric.key) for model in paper.models}
    between = {model: _pairs(paper, honest, model, metric.key, metric.key) for model in paper.models}
    if not any(within.values()) and not any(between.values()):
        return None
    models = [model for model in paper.models if within[model] or between[model]]
    lines = [(Entry(model), *_fields(within[model], metric), *_fields(between[model], metric)) for model in models]
    everything = [[pair for own in pairs.values() for pair in own] for pairs in (within, between)]
    lines.append((Entry("all"), *(field for pairs in everything for field in _fields(pairs, metric))))
    heads = (
        "trainings",
        "best test epoch",
        "last epoch",
        "gain",
        "repeats",
        "paper protocol",
        "honest protocol",
        "gain",
    )
    return Sheet(
        f"{metric.label}: what choosing by the test epoch is worth", ("model", *heads), tuple(lines), notes=(_NOTE,)
    )


def _pairs(a: Results, b: Results, model: str, key_a: str, key_b: str) -> list[tuple[float, float]]:
    found = []
    for place in a.places:
        here, there = a.values(place, model, key_a), b.values(place, model, key_b)
        found += [(here[repeat], there[repeat]) for repeat in here if repeat in there]
    return found


def _fields(pairs: Sequence[tuple[float, float]], metric: Metric) -> list[Entry]:
    if not pairs:
        return [Entry("not run", faint=True)] * 4
    here, there = np.mean(pairs, axis=0)
    gain = here - there if metric.better == "max" else there - here
    numbers = (f"{here:{metric.form}}", f"{there:{metric.form}}", f"{gain:+{metric.form}}")
    return [Entry(str(len(pairs))), *map(Entry, numbers)]

"""Means over folds and seeds beside the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contiformer.benchmarks.events import MODELS
from contiformer.benchmarks.paper_events import paper_values

METRICS = {"log_likelihood": "log-likelihood", "accuracy": "accuracy", "rmse": "RMSE"}
#: Where the paper's numbers are of other data than ours, see ``contiformer.data.synthetic.event_process``.
OTHER_DATA = {"Synthetic"}


@dataclass(frozen=True)
class Mean:
    """Over the cells of a model on a set; the standard error is NaN for one cell."""

    value: float
    error: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """The mean, and ``s / √n``."""
        n = len(values)
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / n**0.5) if n > 1 else float("nan"), n)

    def __str__(self) -> str:
        """As in ``-1.135 ±0.023``."""
        return f"{self.value:.4g}" + (f" ±{self.error:.2g}" if self.count > 1 else "")


def means(rows: Sequence[dict[str, Any]], data: str, metric: str) -> dict[str, Mean]:
    """By model, in the order of the paper's table."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["data"] == data and metric in row["metrics"]:
            found.setdefault(row["model"], []).append(row["metrics"][metric])
    order = {name: n for n, name in enumerate(MODELS)}
    return {name: Mean.of(found[name]) for name in sorted(found, key=lambda name: order.get(name, len(order)))}


def lines(rows: Sequence[dict[str, Any]], data: str) -> list[tuple[str, ...]]:
    """Model, cells, and for each metric ours and the paper's."""
    columns = {metric: means(rows, data, metric) for metric in METRICS}
    paper = paper_values()
    table = []
    for model, first in columns["log_likelihood"].items():
        line = [model, str(first.count)]
        for metric, ours in columns.items():
            theirs = paper.get((data, model, metric))
            line += [str(ours[model]), "" if theirs is None else f"{theirs:.4g}"]
        table.append(tuple(line))
    truth = means(rows, data, "true_log_likelihood")
    if truth:
        # the same in all models, but only of the folds that each has
        best = max(truth.values(), key=lambda mean: mean.count)
        table.append(("true process", str(best.count), str(best), "", "", "", "", ""))
    return table


def verdict(rows: Sequence[dict[str, Any]], data: str, ours: str = "contiformer") -> str:
    """Whether ContiFormer's log-likelihood is the best, or within one standard error of the best, of the best model.

    Models are compared on the cells that both of them have.
    """
    found: dict[str, dict[tuple[int, int], float]] = {}
    for row in rows:
        if row["data"] == data:
            found.setdefault(row["model"], {})[row["fold"], row["seed"]] = row["metrics"]["log_likelihood"]
    rivals = {name: values for name, values in found.items() if name.partition(":")[0] != ours}
    if ours not in found or not rivals:
        return f"{data}: {ours} and a rival are needed to compare"
    gaps = {}
    for name, values in rivals.items():
        shared = sorted(found[ours].keys() & values.keys())
        if shared:
            theirs = Mean.of([values[cell] for cell in shared])
            gaps[name] = (theirs.value - Mean.of([found[ours][cell] for cell in shared]).value, theirs)
    if not gaps:
        return f"{data}: {ours} and its rivals have no cell in common"
    best, (gap, theirs) = max(gaps.items(), key=lambda item: item[1][0])
    if gap <= 0:
        return f"{data}: {ours} is best, {-gap:.4f} ahead of {best} ({theirs.count} cells)"
    if theirs.count == 1:
        return f"{data}: {best} is best, {ours} {gap:.4f} behind (one cell, so there is no standard error)"
    near = "within" if gap <= theirs.error else "not within"
    return f"{data}: {best} is best, {ours} {gap:.4f} behind: {near} one standard error ({theirs.error:.4f}) of it"

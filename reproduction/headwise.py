"""The paper's vector field against the same formula for each head by itself, on three kinds of task."""

from __future__ import annotations

from typing import Any

from benchmarks.recipes import SPIRALS_OWN_OPTIONS
from reproduction import ablations, events, spirals, uea
from reproduction.experiments import Budget, Cell, Experiment, Outcome, Protocol, not_here

#: The smallest sets with room for improvement: BasicMotions and JapaneseVowels are solved.
UEA = ("RacketSports", "Libras", "UWaveGestureLibrary", "Handwriting")
FIELDS = ("concatnorm", "headwise")
SEEDS = (0, 1, 2)
PLACES = (
    *((data, "drop30") for data in UEA),
    *(("MIMIC-II", f"fold{fold}") for fold, _ in events.repeats("MIMIC-II")),
    ("spirals", "alpha0.02"),
)


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed, the two fields one after the other."""
    return [
        Cell("headwise", data, setting, field, seed, protocol)
        for seed in SEEDS
        for data, setting in PLACES
        for field in FIELDS
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """The recipe of the data set's own table, with another field."""
    options: dict[str, Any] = {"field": cell.model}
    if cell.data in UEA:
        return uea.train(cell, {"backbone": "contiformer", "backbone_options": options}, budget, verbose)
    if cell.data == "spirals":
        own = SPIRALS_OWN_OPTIONS["contiformer"]["backbone_options"]
        return spirals.train(cell, "contiformer", budget, verbose, backbone_options=own | options)
    return events.train(cell, {**ablations.COMMON, "backbone_options": options}, budget, verbose)


EXPERIMENT = Experiment(
    name="headwise",
    title="Ablation: one vector field for all heads, or one for each",
    metrics=(*uea.EXPERIMENT.metrics, events.METRICS[0], *spirals.EXPERIMENT.metrics[:2]),
    grid=grid,
    run=run,
    absent=lambda cell: None if cell.data == "spirals" else not_here(cell),
    repeats=True,
    ours="concatnorm",
    note=(
        "concatnorm: the paper's field over all channels; headwise: the same formula for each head's channels. Both "
        "are trained by the recipe of the data set's own table, at the same commit; MIMIC-II with THP's intensity, as "
        "in the other ablations, on all of its folds."
    ),
)

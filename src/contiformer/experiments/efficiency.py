"""What models cost: a training epoch beside S5's, and how time and memory grow with the length of a series."""

from __future__ import annotations

from dataclasses import asdict

from contiformer.benchmarks.backbones import DATA, MODELS, ROUNDS, measure
from contiformer.benchmarks.contenders import Contender
from contiformer.benchmarks.growth import FULL_GROWTH, measure_growth
from contiformer.benchmarks.machine import busy
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Metrics, Outcome
from contiformer.experiments.presence import not_here

TABLE, GENERATED, ALL = "efficiency", "generated", "all"
QUICK_ROUNDS, QUICK_LENGTHS = 2, (30, 125)
#: The names that metrics begin with: the same attention by our algorithm and by the paper's, and torch's layer.
ALGORITHMS: dict[Contender, str] = {"ours": "spectral", "pairwise": "pairwise", "layer": "transformer"}


def grid(protocol: Protocol) -> list[Cell]:
    """A cell for each set, since times can be compared only within one run; RacketSports, the paper's own, first."""
    sets = sorted(DATA, key=lambda name: name != "RacketSports")
    return [
        *(Cell(TABLE, name, "drop0", ALL, 0, protocol) for name in sets),
        Cell(TABLE, GENERATED, "lengths", ALL, 0, protocol),
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """All models on one set, or all lengths."""
    occupied = {"busy": busy()}
    outcome = run_growth(budget) if cell.data == GENERATED else run_set(cell.data, budget)
    return Outcome(outcome.metrics, outcome.configuration, outcome.details | occupied)


def run_set(name: str, budget: Budget) -> Outcome:
    """For each model ``MODEL_time`` (its epoch in S5's), ``MODEL_ms``, ``MODEL_mb`` and ``MODEL_weights``."""
    rounds = ROUNDS if budget == "full" else QUICK_ROUNDS
    metrics: Metrics = {}
    rows = measure(name, MODELS, rounds=rounds, memory=budget == "full")
    for row in rows:
        found = {"time": row.relative, "ms": row.milliseconds, "mb": row.peak_mb, "weights": row.weights}
        metrics |= {f"{row.model}_{key}": value for key, value in found.items() if value is not None}
    return Outcome(metrics, {"models": list(MODELS), "rounds": rounds}, {"rows": [asdict(row) for row in rows]})


def run_growth(budget: Budget) -> Outcome:
    """For each algorithm and length ``spectral_ms_250`` and ``spectral_mb_250``; the paper's while it can follow."""
    lengths = FULL_GROWTH if budget == "full" else QUICK_LENGTHS
    metrics: Metrics = {}
    for point in measure_growth(lengths):
        found = {"ms": point.milliseconds, "mb": point.peak_mb}
        name = ALGORITHMS[point.contender]
        metrics |= {f"{name}_{key}_{point.length}": value for key, value in found.items() if value is not None}
    return Outcome(metrics, {"lengths": list(lengths), "batch": 1})


def curve(metrics: Metrics, algorithm: str, quantity: str) -> list[tuple[int, float]]:
    """Lengths and what an algorithm takes there, "ms" or "mb", as :func:`run_growth` names them.

    Example:
        >>> curve({"spectral_ms_60": 2.0, "spectral_ms_30": 1.0, "spectral_mb_30": 5.0}, "spectral", "ms")
        [(30, 1.0), (60, 2.0)]
    """
    start = f"{algorithm}_{quantity}_"
    return sorted((int(key.removeprefix(start)), value) for key, value in metrics.items() if key.startswith(start))


def absent(cell: Cell) -> str | None:
    """Series of the growth are made here."""
    return None if cell.data == GENERATED else not_here(cell)


EXPERIMENT = Experiment(
    name=TABLE,
    title="Cost: a training epoch relative to S5's (no points dropped), and growth with the length",
    metrics=(Metric("contiformer_time", "ContiFormer's epoch in S5's", "min", ".2f"),),
    grid=grid,
    run=run,
    absent=absent,
    ours="",
    alone=True,
    note="Times hold for the machine that they were measured on. The paper's are of a V100, with steps of 0.1.",
)

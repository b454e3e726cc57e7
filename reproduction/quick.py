"""The quick reproduction: one cell of each kind, trained briefly, and the range in which its metric must lie.

Ranges leave room for the arithmetic of other machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reproduction import experiments
from reproduction.experiments import Cell
from reproduction.running import run_cells
from reproduction.store import Store


@dataclass(frozen=True)
class Expectation:
    """A cell, one of its metrics, and the range in which it must lie."""

    cell: Cell
    metric: str
    low: float
    high: float


EXPECTED: tuple[Expectation, ...] = (
    Expectation(Cell("theorem", "generated", "8points", "vanilla", 0), "largest_error", 0, 1e-10),
    Expectation(Cell("spirals", "spirals", "alpha0.02", "contiformer", 0), "interpolation_rmse", 0, 0.02),
    Expectation(Cell("spirals", "spirals", "alpha0.02", "neural_ode", 0), "interpolation_rmse", 0, 0.03),
    Expectation(Cell("uea", "RacketSports", "drop30", "contiformer", 0), "accuracy", 0.75, 1),
    Expectation(Cell("uea", "RacketSports", "drop30", "gru_d", 0, "paper"), "accuracy", 0.7, 1),
    Expectation(Cell("events", "MIMIC-II", "fold1", "contiformer", 0), "log_likelihood", -1.6, -1.0),
    Expectation(Cell("events", "MIMIC-II", "fold1", "hp", 0), "log_likelihood", -1.5, -1.0),
    Expectation(
        Cell("attention", "MIMIC-II", "fold1", "static scores, static values", 0), "log_likelihood", -2.5, -1.2
    ),
    Expectation(Cell("step-size-scores", "MIMIC-II", "fold1", "step0.5", 0), "off", 0, 1e-5),
    Expectation(Cell("forecasting", "ILI", "horizon24", "dlinear:published", 0), "mse", 1.5, 4.5),
    Expectation(Cell("pendulum", "pendulum", "default", "contiformer", 0), "mse", 0, 0.4),
)


def check(folder: Path, notify: Callable[[str], None] = print) -> tuple[list[str], int]:
    """Run the sample: problems, and how many cells had no data.

    Args:
        folder: of the results; cells that are there are taken as they are.
        notify: told of each cell.
    """
    store, absent = Store(folder, "quick"), 0
    problems: list[str] = []
    for expected in EXPECTED:
        experiment = experiments.get(expected.cell.table)
        tally = run_cells(experiment, [expected.cell], store, notify=notify)
        problems += tally.failed
        absent += len(tally.absent)
        for reason in tally.absent:
            notify(reason)
        row = store.read(expected.cell)
        if row is None:
            continue
        value = row["metrics"][expected.metric]
        if not expected.low <= value <= expected.high:
            problems.append(
                f"{expected.cell}: {expected.metric} is {value:.4g}, expected {expected.low:g} to {expected.high:g}"
            )
    return problems, absent

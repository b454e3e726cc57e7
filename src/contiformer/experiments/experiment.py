"""What a table or figure of the paper is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from contiformer.experiments.cell import Budget, Cell, Protocol

Metrics = dict[str, float]


@dataclass(frozen=True)
class Metric:
    """A column: its key in the results, its name for readers, what is better, and how it is printed."""

    key: str
    label: str
    better: Literal["max", "min"]
    form: str = ".4f"

    def is_better(self, a: float, b: float) -> bool:
        """Whether a is better than b."""
        return a > b if self.better == "max" else a < b


@dataclass(frozen=True)
class Outcome:
    """What running a cell gives.

    Attributes:
        metrics: on the test data.
        configuration: everything that decided what was learned.
        details: other facts worth keeping, for JSON.
    """

    metrics: Metrics
    configuration: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table of the paper as a grid of cells.

    Attributes:
        name: as the command line knows it.
        title: what it shows.
        metrics: its columns, the one that counts first.
        grid: all cells under a protocol, the most telling first.
        run: trains and judges one.
        absent: why a cell cannot be run here, None where it can.
        twins: cells of other tables that are the very same training, so that one serves both.
        repeats: whether cells that differ in the setting are repeats of one thing (folds), as those that differ in
            the seed are.
        ours: the model that is compared with the others; empty where none is.
        note: what a reader has to know.
        protocols: which there are.
        draw: for a figure: its rows and the file to write.
        alone: cells measure time, so none may run beside another.
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    grid: Callable[[Protocol], list[Cell]]
    run: Callable[[Cell, Budget, int], Outcome]
    absent: Callable[[Cell], str | None] = lambda cell: None
    twins: Callable[[Cell], Sequence[Cell]] = lambda cell: ()
    repeats: bool = False
    ours: str = "contiformer"
    note: str = ""
    protocols: tuple[Protocol, ...] = ("honest",)
    draw: Callable[[list[dict[str, Any]], Path], Path] | None = None
    alone: bool = False

    def cells(
        self,
        protocol: Protocol = "honest",
        *,
        datasets: Sequence[str] = (),
        settings: Sequence[str] = (),
        models: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> list[Cell]:
        """Those of the grid that are asked for; nothing named: all."""
        return [
            cell
            for cell in self.grid(protocol)
            if (not datasets or cell.data in datasets)
            and (not settings or cell.setting in settings)
            and (not models or cell.model in models)
            and (not seeds or cell.seed in seeds)
        ]


def best_epoch(history: Sequence[Metrics], key: str, better: Literal["max", "min"]) -> Metrics:
    """The epoch whose figure is the best, as one finds who looks at the test data after each."""
    choose = max if better == "max" else min
    return choose(history, key=lambda row: row[key])

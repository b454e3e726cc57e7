"""What is finished of a table, by place, model and repeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import Literal

from contiformer.experiments.cell import Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric
from contiformer.experiments.paper import Printed, printed
from contiformer.experiments.store import Row, Store, cell_of

#: Data set and setting; the setting is empty where settings are folds.
Place = tuple[str, str]
#: Setting and seed.
Repeat = tuple[str, int]
State = Literal["complete", "complete here", "partly", "not begun", "no data"]


@dataclass(frozen=True)
class Progress:
    """How many cells are finished, can be run on this machine, are left of those, and there are."""

    done: int
    runnable: int
    left: int
    all: int

    @property
    def state(self) -> State:
        """In a word or two."""
        if self.done == self.all:
            return "complete"
        if not self.done:
            return "not begun" if self.runnable else "no data"
        # with no data at all, nothing is left that could be run, and that is no merit
        return "complete here" if self.runnable and not self.left else "partly"


@dataclass(frozen=True)
class Results:
    """The cells of a table under one protocol, and the rows of those that are finished.

    Attributes:
        experiment: whose they are.
        protocol: under which they were run.
        cells: of the grid, finished or not.
        rows: the finished ones, all of one budget.
    """

    experiment: Experiment
    protocol: Protocol
    cells: tuple[Cell, ...]
    rows: dict[Cell, Row]

    def __post_init__(self) -> None:
        """Refuse to compare what cannot be compared."""
        budgets = {str(row["budget"]) for row in self.rows.values()}
        if len(budgets) > 1:
            raise ValueError(f"results of different budgets cannot be compared: {', '.join(sorted(budgets))}")

    @classmethod
    def read(
        cls, experiment: Experiment, protocol: Protocol, store: Store, cells: Sequence[Cell] | None = None
    ) -> Results:
        """From the files; of all cells of the grid unless some are given."""
        asked = tuple(experiment.grid(protocol) if cells is None else cells)
        tables = dict.fromkeys(cell.table for cell in asked)  # a figure may be of the cells of a table
        found = {cell_of(row): row for table in tables for row in store.rows(table)}
        return cls(experiment, protocol, asked, {cell: found[cell] for cell in asked if cell in found})

    @cached_property
    def places(self) -> list[Place]:
        """In the order of the grid, the settings of a data set together."""
        found = list(dict.fromkeys(map(self._place, self.cells)))
        order = list(dict.fromkeys(data for data, _ in found))
        return sorted(found, key=lambda place: order.index(place[0]))

    @cached_property
    def models(self) -> list[str]:
        """In the order of the grid."""
        return list(dict.fromkeys(cell.model for cell in self.cells))

    @cached_property
    def progress(self) -> Progress:
        """Of all cells."""
        return self._progress_of(self.cells)

    def progress_at(self, place: Place, model: str) -> Progress:
        """Of the repeats of one model in one place."""
        return self._progress_of(self._by_place.get((place, model), []))

    def values(self, place: Place, model: str, metric: Metric | str) -> dict[Repeat, float]:
        """The figure of each finished repeat that has it."""
        key = metric if isinstance(metric, str) else metric.key
        return {
            (cell.setting, cell.seed): float(self.rows[cell]["metrics"][key])
            for cell in self._by_place.get((place, model), [])
            if cell in self.rows and key in self.rows[cell]["metrics"]
        }

    def compared(self, metric: Metric) -> list[str]:
        """Models that have the figure anywhere; variants, with a colon in their names, are shown but not ranked."""
        return [
            model
            for model in self.models
            if ":" not in model and any(self.values(place, model, metric) for place in self.places)
        ]

    def common(self, place: Place, models: Iterable[str], metric: Metric) -> dict[str, list[float]]:
        """The figures of the repeats that all of these models have, in one order; empty where there are none."""
        found = {model: self.values(place, model, metric) for model in models}
        shared = sorted(set.intersection(*map(set, found.values()))) if found else []
        return {model: [own[repeat] for repeat in shared] for model, own in found.items()} if shared else {}

    def common_places(self, models: Sequence[str], metric: Metric) -> list[Place]:
        """Where all of these models have a repeat in common."""
        return [place for place in self.places if self.common(place, models, metric)]

    def printed(self, place: Place, model: str, metric: Metric | str) -> Printed | None:
        """What the paper says."""
        key = metric if isinstance(metric, str) else metric.key
        return printed(self.experiment.name, *place, model, key)

    @cached_property
    def _by_place(self) -> dict[tuple[Place, str], list[Cell]]:
        found: dict[tuple[Place, str], list[Cell]] = {}
        for cell in self.cells:
            found.setdefault((self._place(cell), cell.model), []).append(cell)
        return found

    def _place(self, cell: Cell) -> Place:
        return cell.data, "" if self.experiment.repeats else cell.setting

    def _progress_of(self, cells: Sequence[Cell]) -> Progress:
        runnable = [cell for cell in cells if self.experiment.absent(cell) is None]
        left = sum(cell not in self.rows for cell in runnable)
        return Progress(sum(cell in self.rows for cell in cells), len(runnable), left, len(cells))


def better_or_equal(metric: Metric, a: float, b: float) -> bool:
    """Whether a is not worse than b as far as the printed digits tell; what is no number is worse than any.

    Example:
        >>> better_or_equal(Metric("accuracy", "accuracy", "max"), 0.83547, 0.8355)
        True
    """
    if isnan(a) or isnan(b):
        return isnan(b)
    return not metric.is_better(b, a) or not any(digit in f"{a - b:{metric.form}}" for digit in "123456789")

"""Results of a table by place (data set and setting), model and repeat (fold and seed)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from typing import Literal

from reproduction.experiments import PUBLISHED, Cell, Experiment, Metric, Protocol
from reproduction.paper import Printed, printed
from reproduction.store import Row, Store, cell_of

#: Data set and setting; the setting is empty where settings are folds.
Place = tuple[str, str]
#: Setting and seed.
Repeat = tuple[str, int]
State = Literal["complete", "complete here", "partly", "stale", "not begun", "no data"]


@dataclass(frozen=True)
class Progress:
    """Counts of cells.

    Attributes:
        done: finished under the present protocol.
        runnable: whose data are on this machine.
        left: runnable and not done.
        all: of the grid.
        stale: finished under an older protocol, or of unknown source code; not done.
    """

    done: int
    runnable: int
    left: int
    all: int
    stale: int = 0

    @property
    def state(self) -> State:
        """The state in a word or two."""
        if self.done == self.all:
            return "complete"
        if not self.done:
            if self.stale:
                return "stale"
            return "not begun" if self.runnable else "no data"
        # with no data at all, nothing is left that could be run, and that is no merit
        return "complete here" if self.runnable and not self.left else "partly"


@dataclass(frozen=True)
class Results:
    """The cells of a table under one protocol, and the rows of those that are finished.

    Attributes:
        experiment: of the cells.
        protocol: under which they were run.
        cells: of the grid, finished or not.
        rows: the finished ones, stale or not, all of one budget.
    """

    experiment: Experiment
    protocol: Protocol
    cells: tuple[Cell, ...]
    rows: dict[Cell, Row]

    def __post_init__(self) -> None:
        """Reject rows of different budgets."""
        budgets = {str(row["budget"]) for row in self.rows.values()}
        if len(budgets) > 1:
            raise ValueError(f"results of different budgets cannot be compared: {', '.join(sorted(budgets))}")

    @classmethod
    def read(
        cls, experiment: Experiment, protocol: Protocol, store: Store, cells: Sequence[Cell] | None = None
    ) -> Results:
        """Read the results of a store; of all cells of the grid unless some are given."""
        chosen = tuple(experiment.grid(protocol) if cells is None else cells)
        tables = dict.fromkeys(cell.table for cell in chosen)  # a figure may be of the cells of a table
        found = {cell_of(row): row for table in tables for row in store.rows(table)}
        return cls(experiment, protocol, chosen, {cell: found[cell] for cell in chosen if cell in found})

    @cached_property
    def stale(self) -> dict[Cell, str]:
        """The cells whose rows are stale, and why."""
        return {cell: reason for cell, row in self.rows.items() if (reason := self.experiment.stale(row))}

    @cached_property
    def comparable(self) -> Results:
        """The same with the rows to rank and to test: without stale ones, unless there are no others."""
        valid = {cell: row for cell, row in self.rows.items() if cell not in self.stale}
        return self if not valid or not self.stale else replace(self, rows=valid)

    @cached_property
    def places(self) -> list[Place]:
        """All places, in the order of the grid, the settings of a data set together."""
        found = list(dict.fromkeys(map(self._place, self.cells)))
        order = list(dict.fromkeys(data for data, _ in found))
        return sorted(found, key=lambda place: order.index(place[0]))

    @cached_property
    def models(self) -> list[str]:
        """All models, in the order of the grid."""
        return list(dict.fromkeys(cell.model for cell in self.cells))

    @cached_property
    def progress(self) -> Progress:
        """Counts over all cells."""
        return self._progress_of(self.cells)

    def progress_at(self, place: Place, model: str) -> Progress:
        """Counts over the repeats of one model in one place."""
        return self._progress_of(self._by_place.get((place, model), []))

    def values(self, place: Place, model: str, metric: Metric | str) -> dict[Repeat, float]:
        """The metric of each finished repeat that has it; of stale ones only where there are no others."""
        key = metric if isinstance(metric, str) else metric.key
        cells = [cell for cell in self._by_place.get((place, model), []) if key in self._metrics(cell)]
        cells = [cell for cell in cells if cell not in self.stale] or cells
        return {(cell.setting, cell.seed): float(self._metrics(cell)[key]) for cell in cells}

    def is_stale(self, place: Place, model: str, metric: Metric | str) -> bool:
        """Whether :meth:`values` are of stale cells."""
        values = self.values(place, model, metric)
        cells = self._by_place.get((place, model), [])
        return any(cell in self.stale for cell in cells if (cell.setting, cell.seed) in values)

    def ranked_models(self, metric: Metric) -> list[str]:
        """Models that have the metric anywhere; variants, with a colon in their names, are shown but not ranked."""
        return [
            model
            for model in self.models
            if (":" not in model or model in self.experiment.ranked)
            and any(self.values(place, model, metric) for place in self.places)
        ]

    def common(self, place: Place, models: Iterable[str], metric: Metric) -> dict[str, list[float]]:
        """The metric in the repeats that all of these models have on equal data, in one order; empty without any.

        Data are equal where setting and seed are, and the protocol version and the reason to be stale, if any.
        """
        found = {model: self.keyed_values(place, model, metric) for model in models}
        shared = sorted(set.intersection(*map(set, found.values()))) if found else []
        return {model: [own[repeat] for repeat in shared] for model, own in found.items()} if shared else {}

    def common_places(self, models: Sequence[str], metric: Metric) -> list[Place]:
        """Places where all of these models have a repeat in common."""
        return [place for place in self.places if self.common(place, models, metric)]

    def printed(self, place: Place, model: str, metric: Metric | str) -> Printed | None:
        """The paper's number, for a model by our recipe as for the same as published."""
        key = metric if isinstance(metric, str) else metric.paper or metric.key
        table = self.experiment.paper or self.experiment.name
        return printed(table, *place, model.removesuffix(f":{PUBLISHED}"), key)

    def _metrics(self, cell: Cell) -> dict[str, float]:
        return self.rows[cell]["metrics"] if cell in self.rows else {}

    def keyed_values(self, place: Place, model: str, metric: Metric | str) -> dict[tuple[str, int, str, str], float]:
        """:meth:`values` by setting, seed, protocol version and reason to be stale: equal keys mean equal data."""
        values = self.values(place, model, metric)
        cells = {(cell.setting, cell.seed): cell for cell in self._by_place.get((place, model), [])}
        bases = {key: (str(self.rows[cells[key]].get("version")), self.stale.get(cells[key], "")) for key in values}
        return {(*key, *bases[key]): value for key, value in values.items()}

    @cached_property
    def _by_place(self) -> dict[tuple[Place, str], list[Cell]]:
        found: dict[tuple[Place, str], list[Cell]] = {}
        for cell in self.cells:
            found.setdefault((self._place(cell), cell.model), []).append(cell)
        return found

    def _place(self, cell: Cell) -> Place:
        return cell.data, "" if self.experiment.repeats else cell.setting

    def _progress_of(self, cells: Sequence[Cell]) -> Progress:
        done = {cell for cell in cells if cell in self.rows and cell not in self.stale}
        runnable = [cell for cell in cells if self.experiment.absent(cell) is None]
        stale = sum(cell in self.stale for cell in cells)
        return Progress(len(done), len(runnable), sum(cell not in done for cell in runnable), len(cells), stale)


def better_or_equal(metric: Metric, a: float, b: float) -> bool:
    """Whether a is not worse than b as far as the printed digits tell; NaN is worse than any number.

    Example:
        >>> from reproduction.experiments import Metric
        >>> from reproduction.results import better_or_equal
        >>> better_or_equal(Metric("accuracy", "accuracy", "max"), 0.83547, 0.8355)
        True
    """
    if isnan(a) or isnan(b):
        return isnan(b)
    return not metric.is_better(b, a) or not any(digit in f"{a - b:{metric.form}}" for digit in "123456789")

"""The paper's table of event prediction: every model on every set, cell by cell, resumable.

A cell is trained on the train part of one fold, chosen by its dev part, and judged once on its test part. Where a set
has one published split there are several seeds in place of folds. Models see times and types and nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from contiformer.benchmarks.machine import machine_facts
from contiformer.data.catalog.events import FOLDS, load_events
from contiformer.data.catalog.lock import only_one
from contiformer.data.errors import DataError
from contiformer.data.events import EventSet, without_features
from contiformer.data.readers.text import read_text, write_text
from contiformer.data.synthetic import EventProcess
from contiformer.estimators import EventPredictor

DATA = ("Synthetic", "Neonate", "MIMIC-II", "BookOrder", "StackOverflow", "Taxi")
#: Backbones of EventPredictor; behind a colon another intensity than the backbone's own.
MODELS = (
    "hp",
    "rmtpp",
    "nhp",
    "sahp",
    "thp",
    "nstka",
    "gru_dt",
    "ode_rnn",
    "mtan",
    "contiformer",
    "contiformer:thp",
)
SEEDS_OF_ONE_FOLD = (0, 1, 2)
#: Parameters that do not decide what is learned.
_ELSEWHERE = ("run_dir", "verbose", "num_workers", "accelerator", "devices", "num_nodes")
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One training: a set, a model, a fold and a seed."""

    data: str
    model: str
    fold: int
    seed: int

    def __str__(self) -> str:
        """As in ``MIMIC-II thp fold 2 seed 0``."""
        return f"{self.data} {self.model} fold {self.fold} seed {self.seed}"


def cells(
    data: Sequence[str] = DATA,
    models: Sequence[str] = MODELS,
    folds: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Cell]:
    """All cells that are asked for, one set after the other, fold by fold, so that models can be compared early.

    Args:
        data: names of sets.
        models: names of models.
        folds: those that a set has not are left out; None: all.
        seeds: None: 0, and for sets with one fold :data:`SEEDS_OF_ONE_FOLD`.
    """
    found = []
    for name in data:
        count = FOLDS.get(name, 1)
        chosen = [fold for fold in folds or range(1, count + 1) if 1 <= fold <= count]
        of_each = seeds or (SEEDS_OF_ONE_FOLD if count == 1 else (0,))
        found += [Cell(name, model, fold, seed) for fold in chosen for seed in of_each for model in models]
    return found


def settings_of(cell: Cell, changes: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the estimator that are not the default ones."""
    backbone, _, intensity = cell.model.partition(":")
    return {"backbone": backbone, "intensity": intensity or "auto", "seed": cell.seed, **changes}


def configuration(settings: dict[str, Any]) -> dict[str, Any]:
    """All that decides what is learned, for JSON."""
    parameters = EventPredictor(**settings).get_params(deep=False)
    return {name: value for name, value in parameters.items() if name not in _ELSEWHERE}


def measure_cell(cell: Cell, changes: dict[str, Any], verbose: int) -> Row:
    """Train and judge."""
    began = time.perf_counter()
    settings = settings_of(cell, changes)
    train, dev, test, truth = _parts(cell.data, cell.fold)
    model = EventPredictor(**{**settings, "verbose": verbose}).fit(train, validation_data=dev).whole()
    return {
        **asdict(cell),
        "metrics": model.evaluate(test) | truth,
        "validation": model.metrics_["validation"],
        "epochs": model.metrics_["epochs"],
        "weights": sum(weight.numel() for weight in model.tasks_[0].parameters()),
        "sequences": {"train": len(train), "dev": len(dev), "test": len(test)},
        "notes": dict(train.notes),
        "configuration": configuration(settings),
        "seconds": round(model.metrics_["seconds"], 1),
        "seconds_in_all": round(time.perf_counter() - began, 1),
        "machine": machine_facts(),
    }


@lru_cache(maxsize=1)
def _parts(name: str, fold: int) -> tuple[EventSet, EventSet, EventSet, dict[str, float]]:
    """What models see of train, dev and test part, and how good one can be where that is known; once for all models."""
    train, dev, test = (load_events(name, fold=fold, split=part) for part in ("train", "dev", "test"))
    truth = {"true_log_likelihood": true_log_likelihood(test)} if name == "Synthetic" else {}
    return train.map(without_features), dev.map(without_features), test.map(without_features), truth


def true_log_likelihood(data: EventSet) -> float:
    """Of the paper's process per scored event, which nothing can beat but by chance."""
    process = EventProcess()
    return sum(process.log_likelihood(one) for one in data) / int(data.lengths.sum() - len(data))


def read_rows(path: Path) -> list[Row]:
    """What was measured before."""
    if not path.is_file():
        return []
    try:
        rows = json.loads(read_text(path))
        if not all(cell_of(row) and row["metrics"] for row in rows):
            raise TypeError("a row without metrics")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"the results are damaged ({error})", file=path, remedy="repair or remove the file") from None
    return list(rows)


def cell_of(row: Row) -> Cell:
    """Which cell a row is of."""
    return Cell(row["data"], row["model"], row["fold"], row["seed"])


def keep(row: Row, path: Path) -> None:
    """Put a row into the file, in place of an older one of its cell; other processes may do the same."""
    with only_one(path):
        rows = [other for other in read_rows(path) if cell_of(other) != cell_of(row)]
        write_text(path, json.dumps([*rows, row], indent=1))


def outdated(rows: Sequence[Row], changes: dict[str, Any]) -> Iterator[tuple[Cell, str]]:
    """Cells that were measured with other settings, and the first that differs."""
    for row in rows:
        now = configuration(settings_of(cell_of(row), changes))
        then = row.get("configuration", {})
        differ = [name for name in now if json.dumps(now[name]) != json.dumps(then.get(name))]
        if differ:
            yield cell_of(row), f"{differ[0]} {then.get(differ[0])} (now {now[differ[0]]})"


def measure(
    wanted: Sequence[Cell],
    path: Path,
    *,
    changes: dict[str, Any] | None = None,
    redo: bool = False,
    verbose: int = 1,
    notify: Callable[[str], None] = print,
) -> list[Row]:
    """Measure what is not in the file yet, write after each cell, and return the rows of all that are wanted.

    Args:
        wanted: the cells.
        path: of the file, which is made.
        changes: parameters of the estimator for all models.
        redo: measure again what was measured with other settings.
        verbose: 1: show each training.
        notify: told of each cell.
    """
    changes = changes or {}
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = set(wanted)
    old = dict(outdated([row for row in read_rows(path) if cell_of(row) in asked], changes))
    for cell, why in old.items() if not redo else ():
        notify(f"note: {cell} was measured with {why}; --redo measures it again")
    for cell in wanted:
        # read again each time: another process may have been there
        if cell in {cell_of(row) for row in read_rows(path)} and not (redo and cell in old):
            continue
        row = measure_cell(cell, changes, verbose)
        keep(row, path)
        said = row["metrics"]
        notify(
            f"{cell}: log-likelihood {said['log_likelihood']:.4f}, accuracy {said['accuracy']:.4f}, "
            f"RMSE {said['rmse']:.4g}, {row['seconds_in_all']:.0f} s"
        )
    return [row for row in read_rows(path) if cell_of(row) in asked]

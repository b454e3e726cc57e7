"""Experiments: tables and figures of the paper as grids of cells, and all of them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from contiformer.data import did_you_mean
from contiformer.data.catalog import data_folders, dataset_info, find_file, presence

if TYPE_CHECKING:
    from contiformer.estimators import Learner
    from contiformer.plots import Sheet
    from reproduction.results import Results

Protocol = Literal["honest", "paper"]
Budget = Literal["full", "quick"]
Metrics = dict[str, float]

#: Behind a colon in the name of a model: ContiFormer with static scores and values, all else equal.
STATIC = "static"
#: Behind a colon: trained as published, not by our recipe.
PUBLISHED = "published"
#: Behind the name of an experiment: the same with the paper's own training, ``--recipe paper``.
PAPER_RECIPE = "-paper-recipe"
#: ContiFormer's control in every table.
STATIC_TWIN = f"contiformer:{STATIC}"
CONTROLS_NOTE = (
    f"Controls, which the paper does not have: {STATIC_TWIN} is ContiFormer with static scores and values, all else "
    "equal, transformer:control a plain Transformer by ContiFormer's recipe."
)
#: Parameters of an estimator that do not decide what is learned.
_ELSEWHERE = ("run_dir", "verbose", "num_workers", "accelerator", "devices", "num_nodes")


@dataclass(frozen=True, order=True)
class Cell:
    """One training, the smallest piece of a table.

    Attributes:
        table: name of the experiment.
        data: name of the data set.
        setting: what else is fixed, such as "drop30", "horizon24" or "fold1".
        model: the backbone, or the variant in an ablation.
        seed: of everything.
        protocol: "honest": chosen by a part of the training data, test data read once; "paper": as the authors' code
            does, the epoch with the best test figure.

    Example:
        >>> from reproduction.experiments import Cell
        >>> cell = Cell("uea", "Libras", "drop30", "mtan", 0)
        >>> print(cell)
        uea Libras drop30 mtan seed 0
        >>> print(cell.path)
        uea/Libras/drop30/mtan-honest-seed0.json
    """

    table: str
    data: str
    setting: str
    model: str
    seed: int
    protocol: Protocol = "honest"

    @property
    def path(self) -> PurePosixPath:
        """Its file, below the folder of unpublished cells."""
        name = f"{self.model.replace(':', '+')}-{self.protocol}-seed{self.seed}.json"
        return PurePosixPath(self.table) / self.data / self.setting / name

    def __str__(self) -> str:
        """The names in their order."""
        protocol = "" if self.protocol == "honest" else f" ({self.protocol} protocol)"
        return f"{self.table} {self.data} {self.setting} {self.model} seed {self.seed}{protocol}"


@dataclass(frozen=True)
class Metric:
    """A figure of a cell: its key in the results, its name for readers, what is better, and how it is printed.

    ``paper``: the key of the paper's number, where that is another.
    """

    key: str
    label: str
    better: Literal["max", "min"]
    form: str = ".4f"
    paper: str = ""

    def is_better(self, a: float, b: float) -> bool:
        """Whether a is better than b."""
        return a > b if self.better == "max" else a < b


@dataclass(frozen=True)
class Outcome:
    """Results of one cell.

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
    """A table or figure of the paper as a grid of cells.

    Attributes:
        name: as the command line knows it.
        title: what it shows.
        metrics: its columns, the one that counts first.
        grid: all cells under a protocol, the most telling first.
        run: trains and judges one.
        version: of recipe and data preparation. Raise it when either changes: results of other versions count as not
            run, and are shown as stale. Experiments that share trainings (``twins``) share it.
        absent: why a cell cannot be run here, None where it can.
        twins: cells of other tables that are the very same training, so that one serves both.
        repeats: whether cells that differ in the setting are repeats of one thing (folds), as those that differ in
            the seed are.
        ours: the model that is compared with the others; empty where none is.
        note: what a reader has to know.
        protocols: which there are.
        draw: for a figure: its rows and the file to write.
        sheets: its tables of results, where they are not one for each metric.
        further_sheets: tables that follow those of all experiments.
        alone: cells measure time, so none may run beside another.
        ranked: variants, with a colon in their names, that are ranked as models are.
        paper: the experiment whose numbers the paper prints, where that is another.
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    grid: Callable[[Protocol], list[Cell]]
    run: Callable[[Cell, Budget, int], Outcome]
    version: int = 1
    absent: Callable[[Cell], str | None] = lambda cell: None
    twins: Callable[[Cell], Sequence[Cell]] = lambda cell: ()
    repeats: bool = False
    ours: str = "contiformer"
    note: str = ""
    protocols: tuple[Protocol, ...] = ("honest",)
    draw: Callable[[list[dict[str, Any]], Path], Path] | None = None
    sheets: Callable[[Results], list[Sheet]] | None = None
    further_sheets: Callable[[Results], list[Sheet]] = lambda results: []
    alone: bool = False
    ranked: tuple[str, ...] = ()
    paper: str = ""

    def cells(
        self,
        protocol: Protocol = "honest",
        *,
        datasets: Sequence[str] = (),
        settings: Sequence[str] = (),
        models: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> list[Cell]:
        """Cells of the grid, only those of the given names."""
        return [
            cell
            for cell in self.grid(protocol)
            if (not datasets or cell.data in datasets)
            and (not settings or cell.setting in settings)
            and (not models or cell.model in models)
            and (not seeds or cell.seed in seeds)
        ]

    def stale(self, row: dict[str, Any]) -> str | None:
        """Why a result cannot be compared with those of today, None where it can."""
        if reason := row.get("stale"):
            return str(reason)
        version = row.get("version")
        return None if version == self.version else f"protocol version {version}, now {self.version}"


#: Modules and names, in the order of the report; each is imported when it is used.
EXPERIMENTS: dict[str, str] = {
    "spirals": "spirals:EXPERIMENT",
    "uea": "uea:EXPERIMENT",
    "uea-paper-recipe": "uea:PAPER_RECIPE_EXPERIMENT",
    "events": "events:EXPERIMENT",
    "events-short": "events:SHORT",
    "events-significance": "events:SIGNIFICANCE",
    "forecasting": "forecasting:EXPERIMENT",
    "pendulum": "pendulum:EXPERIMENT",
    "efficiency": "efficiency:EXPERIMENT",
    "efficiency-accuracy": "efficiency:ACCURACY",
    "attention": "ablations:ATTENTION",
    "quadrature": "ablations:QUADRATURE",
    "step-size": "ablations:STEP_SIZE",
    "step-size-short": "step_size:SHORT",
    "step-size-scores": "step_size:SCORES",
    "field": "ablations:FIELD",
    "headwise": "headwise:EXPERIMENT",
    "dropout": "ablations:DROPOUT",
    "time-normalisation": "ablations:TIME_NORMALISATION",
    "continuity": "continuity:EXPERIMENT",
    "continuity-blocks": "blocks:EXPERIMENT",
    "theorem": "theorem:EXPERIMENT",
    "fig-spirals": "spirals:FIGURE",
    "fig-attention": "fig_attention:EXPERIMENT",
    "fig-dropout": "spirals:DROPOUT_FIGURE",
    "fig-cost": "efficiency:FIGURE",
}
#: Boards of real data, ``python -m reproduction boards NAME``; their cells and tables have the prefix ``board-``.
BOARDS: dict[str, str] = {
    "board-clinical": "boards:CLINICAL",
    "board-irregular": "boards:IRREGULAR",
    "board-uea": "boards:UEA",
    "board-rfid": "boards:RFID",
    "board-events": "boards:EVENTS",
    "board-forecast-t": "boards:FORECAST_T",
    "board-forecast-p": "boards:FORECAST_P",
    "board-pendulum": "boards:PENDULUM",
}


def get(name: str) -> Experiment:
    """An experiment.

    Raises:
        ValueError: there is none of this name.
    """
    known = EXPERIMENTS | BOARDS
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}; {did_you_mean(name, known)}")
    module, attribute = known[name].split(":")
    found = getattr(import_module(f"reproduction.{module}"), attribute)
    assert isinstance(found, Experiment)
    return found


def configuration(model: Learner) -> dict[str, Any]:
    """All parameters of a fitted model that decide what is learned, for JSON.

    Options of the backbone are those it was made with, which a task may choose where the user does not.
    """
    options = {**model.to_options(), "backbone_options": model.config_["backbone_options"]}
    return {name: value for name, value in options.items() if name not in _ELSEWHERE}


def model_options(model: str) -> tuple[dict[str, Any], list[str]]:
    """Parameters of an estimator for the name of a model, and the words behind its colons that the table explains.

    Example:
        >>> from reproduction.experiments import model_options
        >>> model_options("mtan:hazard")
        ({'backbone': 'mtan'}, ['hazard'])
        >>> model_options("contiformer:static")[0]["backbone_options"]
        {'continuous_scores': False, 'continuous_values': False}
    """
    backbone, *words = model.split(":")
    if STATIC not in words:
        return {"backbone": backbone}, words
    static = {"continuous_scores": False, "continuous_values": False}
    return {"backbone": backbone, "backbone_options": static}, [word for word in words if word != STATIC]


def best_epoch(history: Sequence[Metrics], key: str, better: Literal["max", "min"]) -> Metrics:
    """The epoch with the best test metric, as in the protocol of the paper."""
    choose = max if better == "max" else min
    return choose(history, key=lambda row: row[key])


def not_here(cell: Cell) -> str | None:
    """Why a cell cannot be run: its data set is not in any of the data folders."""
    return _not_here(cell.data, tuple(map(str, data_folders())))


@cache
def _not_here(name: str, _folders: tuple[str, ...]) -> str | None:
    info = dataset_info(name)
    # a form that is known to lack some of the published sequences will do, one of which a file is missing will not
    if not info.forms or any(all(find_file(path) is not None for path in form.files) for form in info.forms):
        return None
    what = f"parts of {name} are" if presence(info) == "part" else f"{name} is"
    return f"no data: {what} not here"

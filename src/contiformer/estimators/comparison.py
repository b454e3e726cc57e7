"""Cross-validated comparison of models on the user's data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contiformer.estimators.cells import Cells, names_of_models, new_model
from contiformer.estimators.comparison_tasks import LARGER, TASKS, CrossValidation
from contiformer.estimators.learner import Learner
from contiformer.tasks.base import Judged

if TYPE_CHECKING:
    from rich.table import Table

#: Resamplings of the series for intervals, and their level.
RESAMPLINGS, LEVEL = 200, 0.95


@dataclass(frozen=True)
class Row:
    """The figures of one model.

    Attributes:
        model: its name.
        metrics: over the out-of-fold predictions of all series that it was asked for.
        low, high: the 95 % interval of the main metric.
        behind, behind_low, behind_high: how much it is worse than the best model, and the interval of this paired
            difference over the same series; 0 for the best.
        seconds: of a training and the predictions for a fold, on average.
        memory: the most that a training took beyond what the process had, in MB; None where the system does not say.
        folds: how many of them it was trained for.
    """

    model: str
    metrics: dict[str, float]
    low: float
    high: float
    behind: float
    behind_low: float
    behind_high: float
    seconds: float
    memory: float | None
    folds: int


@dataclass(frozen=True)
class Comparison:
    """The outcome of :func:`compare`: ``print`` it, or see ``rows``, ``recommendation`` and ``plot``.

    Example:
        >>> from contiformer import compare
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in range(-20, 20)]
        >>> found = compare(X, range(-20, 20), task="regression", models=["rocket", "boosting"], folds=2)
        >>> found.metric, found.series, len(found.rows)
        ('rmse', 40, 2)
    """

    task: str
    metric: str
    folds: int
    #: How many series, sequences or windows were judged, and which of them.
    series: int
    items: str
    rows: tuple[Row, ...]
    #: Models that the time budget left out.
    left_out: tuple[str, ...] = ()

    def recommendation(self) -> str:
        """The quickest model that is not surely worse than the best, in a sentence."""
        best = self.rows[0]
        level = [row for row in self.rows if row.behind_low <= 0]
        quickest = min(level, key=lambda row: row.seconds)
        if quickest is best:
            others = [row for row in level if row is not best]
            listed = ", ".join(row.model for row in others)
            also = f"; {listed} cannot be told from it, but took longer" if others else ""
            return f"Use {best.model}: the best {self.metric} here ({best.metrics[self.metric]:.4g}){also}."
        times = best.seconds / max(quickest.seconds, 1e-9)
        return (
            f"Use {quickest.model}: as good as {best.model} here as far as {self.series:,} {self.items} can tell "
            f"({self.metric} {quickest.metrics[self.metric]:.4g} against {best.metrics[self.metric]:.4g}, behind by "
            f"{quickest.behind:.2g}, 95 % interval {quickest.behind_low:.2g} to {quickest.behind_high:.2g}), and "
            f"{times:,.{0 if times >= 10 else 1}f} times faster."
        )

    def table(self) -> Table:
        """For rich: the metric that models are compared by; ``rows`` have the others."""
        from rich.markup import escape  # noqa: PLC0415 - rich is not needed to compute
        from rich.table import Table  # noqa: PLC0415

        title = f"{self.task}, {self.series:,} {self.items}, {self.folds} folds"
        table = Table(title=title, title_justify="left")
        # names are typed again, and must not be cut
        table.add_column("model", no_wrap=True)
        for head in (self.metric, "95 %", "behind", "95 %", "seconds", "MB"):
            table.add_column(head, no_wrap=head == self.metric)
        for row in self.rows:
            interval, gap = f"{row.low:.3g} to {row.high:.3g}", f"{row.behind_low:.2g} to {row.behind_high:.2g}"
            behind = ("", "") if row is self.rows[0] else (f"{row.behind:.2g}", gap)
            memory = "" if row.memory is None else f"{row.memory:.0f}"
            name = row.model if row.folds == self.folds else f"{row.model} ({row.folds} folds)"
            table.add_row(
                escape(name), f"{row.metrics[self.metric]:.4g}", interval, *behind, f"{row.seconds:.3g}", memory
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "recommendation": self.recommendation()}

    def plot(self, path: str | Path) -> Path:
        """Draw the main metric with its intervals, and the seconds, as a PNG; needs matplotlib."""
        from contiformer.plots.figures import BLUE, GREY, new_figure, quiet, save  # noqa: PLC0415

        figure = new_figure(9.0, 1.0 + 0.35 * len(self.rows))
        left, right = figure.subplots(1, 2, sharey=True)
        places = np.arange(len(self.rows))[::-1]
        for place, row in zip(places, self.rows, strict=True):
            value = row.metrics[self.metric]
            left.plot([row.low, row.high], [place, place], color=GREY, linewidth=3)
            left.plot(value, place, "o", color=BLUE)
        left.set_yticks(places, [row.model[:40] for row in self.rows], fontsize=8)
        left.set_xlabel(f"{self.metric}, 95 % interval")
        right.barh(places, [row.seconds for row in self.rows], color=BLUE, height=0.5)
        right.set(xscale="log", xlabel="seconds for a fold")
        for axes in (left, right):
            quiet(axes)
        return save(figure, Path(path))

    def __str__(self) -> str:
        from rich.console import Console  # noqa: PLC0415

        console = Console(width=140, highlight=False)
        with console.capture() as found:
            console.print(self.table())
        late = f"\nLeft out by the time budget: {', '.join(self.left_out)}." if self.left_out else ""
        return f"{found.get()}\n{self.recommendation()}{late}"


def compare(
    X: Any,
    y: Any = None,
    *,
    task: str = "classification",
    models: Sequence[str | Learner] | Mapping[str, Learner] | None = None,
    folds: int = 5,
    metric: str | None = None,
    time_budget: float | None = None,
    run_dir: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    seed: int = 0,
    **columns: Any,
) -> Comparison:
    """Compare models by cross-validation on your own data.

    Interpolations are asked for hidden observations, forecasts for windows that do not overlap. Few series are divided
    along time: into stretches, or, for forecasts, so that models are trained on what came before a fold.

    Args:
        X, y: as for the ``fit`` of the task's estimator.
        task: "classification", "regression", "interpolation", "forecasting" or "events".
        models: names of backbones and baselines, or estimators, whose parameters are used, also by names of your own;
            None: baselines and rivals that fit the task.
        folds: of the cross-validation; every series is predicted once by a model that has not seen it.
        metric: to compare by; None: AUROC of two classes, accuracy of more, RMSE of numbers and values (in standard
            deviations of the channel), log-likelihood of events.
        time_budget: seconds after which no further training is begun. Models are trained fold by fold, so that all
            have as many folds as there is time for.
        run_dir: folder for the predictions of each training; a comparison that was stopped goes on from there.
        progress: called with a line for each training.
        seed: of the folds.
        **columns: roles of the columns of a DataFrame, as in ``fit``.

    Example:
        >>> from contiformer import compare
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in range(-20, 20)]
        >>> found = compare(X, [n > 0 for n in range(-20, 20)], models=["rocket", "boosting"], folds=2)
        >>> sorted(row.model for row in found.rows), found.metric
        (['boosting', 'rocket'], 'auroc')
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    rules = TASKS[task]()
    chosen = rules.models if models is None else models
    every: list[str | Learner] = list(chosen.values() if isinstance(chosen, Mapping) else chosen)
    # a cell belongs to all parameters of a model, whatever it is called
    keys = names_of_models(every)
    names = list(chosen) if isinstance(chosen, Mapping) else keys
    if len(set(names)) < len(names) or not names:
        raise ValueError("models must be one or more different ones")
    data = rules.read(new_model(every[0], rules.kind), X, y, columns)
    for model in every:
        rules.prepare(new_model(model, rules.kind))
    pairs = rules.divide(data, folds, seed)
    cells = Cells(None if run_dir is None else Path(run_dir), (task, len(pairs), seed), data)
    started = time.perf_counter()
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, (rest, fold) in enumerate(pairs):
        for model, key, name in zip(every, keys, names, strict=True):
            late = time_budget is not None and time.perf_counter() - started > time_budget
            # the first one is always trained: no table without a row
            if late and any(done.values()) and cells.read(key, number) is None:
                continue

            def train(place: Path | None, model: Any = model, rest: Any = rest, fold: Any = fold) -> Any:
                return _trained(rules, rules.prepare(new_model(model, rules.kind, place)), rest, fold, data)

            cell = cells.run(key, number, train)
            if progress is not None:
                progress(f"fold {number + 1} of {len(pairs)}, {name}: {cell['seconds']:.3g} s")
            judged = {what: np.array(x) for what, x in cell["judged"].items()}
            done[name].append({**cell, "judged": judged})
    return _summary(rules, task, metric, done, len(pairs))


def _trained(rules: CrossValidation, model: Any, rest: Any, fold: Any, data: Any) -> dict[str, Any]:
    """What is judged of a fold, seconds, and memory."""
    before = _reset_peak()
    started = time.perf_counter()
    judged = rules.judge(model.fit(rest).require_complete(), fold, data)
    seconds = time.perf_counter() - started
    peak = _memory("VmHWM")
    taken = None if before is None or peak is None else max(0.0, peak - before)
    return {"judged": {name: x.tolist() for name, x in judged.items()}, "seconds": seconds, "memory": taken}


def _memory(name: str) -> float | None:
    """A figure of this process in MB, as Linux tells it."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024
    return None


def _reset_peak() -> float | None:
    """Reset the peak of memory, and return the memory in use, in MB."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _memory("VmRSS")


def _summary(
    rules: CrossValidation, task: str, metric: str | None, done: dict[str, list[dict[str, Any]]], folds: int
) -> Comparison:
    """Metrics, and intervals by resampling rows: the same resamplings for all models, so differences are paired."""
    common = min(len(cells) for cells in done.values() if cells)
    whole = {name: _joined(cells) for name, cells in done.items() if cells}
    every = {name: rules.metrics(judged) for name, judged in whole.items()}
    first = next(iter(every.values()))
    chosen = metric or next(name for name in rules.preferred if name in first)
    if chosen not in first:
        raise ValueError(f"metric must be one of {', '.join(first)}, got {chosen!r}")
    # differences are of the folds that all models have
    shared = {name: _joined(done[name][:common]) for name in whole}
    count = len(next(iter(next(iter(shared.values())).values())))
    random = np.random.default_rng(0)
    draws: dict[str, list[float]] = {name: [] for name in whole}
    for _ in range(RESAMPLINGS):
        rows = random.integers(count, size=count)
        found = {name: rules.metrics({k: x[rows] for k, x in one.items()}).get(chosen) for name, one in shared.items()}
        if all(value is not None and np.isfinite(value) for value in found.values()):
            for name, value in found.items():
                draws[name].append(float(value))  # type: ignore[arg-type]
    sign = 1.0 if chosen in LARGER else -1.0
    on_shared = {name: rules.metrics(one)[chosen] for name, one in shared.items()}
    order = sorted(whole, key=lambda name: -sign * on_shared[name])
    edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    best = np.array(draws[order[0]])
    rows_: list[Row] = []
    for name in order:
        own, cells = np.array(draws[name]), done[name]
        gap = sign * (best - own)
        low, high, gap_low, gap_high = (float(x) for pair in (own, gap) for x in np.quantile(pair, edges))
        behind = sign * (on_shared[order[0]] - on_shared[name])
        memory = [cell["memory"] for cell in cells if cell["memory"] is not None]
        seconds = float(np.mean([cell["seconds"] for cell in cells]))
        most = max(memory) if memory else None
        rows_.append(Row(name, every[name], low, high, behind, gap_low, gap_high, seconds, most, len(cells)))
    late = tuple(name for name, cells in done.items() if not cells)
    judged = max(len(next(iter(one.values()))) for one in whole.values())
    return Comparison(task, chosen, folds, judged, rules.items, tuple(rows_), late)


def _joined(cells: list[dict[str, Any]]) -> Judged:
    """What was judged of several folds."""
    return {name: np.concatenate([cell["judged"][name] for cell in cells]) for name in cells[0]["judged"]}

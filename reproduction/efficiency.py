"""Cost: a training epoch of each model in epochs of S5, and growth of time and memory with the length of a series."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.backbones import DATA, MODELS, ROUNDS, measure
from benchmarks.contenders import Contender
from benchmarks.growth import FULL_GROWTH, MEMORY_TICKS, TIME_TICKS, measure_growth
from contiformer.machine import busy
from contiformer.plots import BLUE, GREY, INK, ORANGE, Entry, Sheet, new_figure, quiet, save
from reproduction import uea
from reproduction.experiments import Budget, Cell, Experiment, Metric, Metrics, Outcome, Protocol, not_here
from reproduction.paper import printed
from reproduction.results import Place, Results
from reproduction.store import Row

TABLE, GENERATED, ALL = "efficiency", "generated", "all"
QUICK_ROUNDS, QUICK_LENGTHS = 2, (30, 125)
#: The names that metrics begin with: the same attention by our algorithm and by the paper's, and torch's layer.
ALGORITHMS: dict[Contender, str] = {"ours": "spectral", "pairwise": "pairwise", "layer": "transformer"}
#: Label and colour of each algorithm.
LINES = {
    "pairwise": ("the paper's algorithm, all pairs", ORANGE),
    "spectral": ("ours, the same attention", BLUE),
    "transformer": ("torch's transformer layer", "0.5"),
}
LABELS = {"contiformer": "ContiFormer", "tst": "TST", "s5": "S5", "ode_rnn": "ODE-RNN", "neural_cde": "Neural CDE"}
RATIO_TICKS = {0.1: "0.1", 0.2: "0.2", 0.5: "0.5", 1.0: "1", 2.0: "2", 5.0: "5", 10.0: "10", 20.0: "20", 50.0: "50"}
#: Models of the table with accuracies by the paper's names, which tell the step size of a solver; ours has none.
ACCURATE: dict[str, dict[str, Any]] = {
    "contiformer": {},
    **{f"contiformer step {step}": {"method": "pairwise", "rule": "linear", "step_size": step} for step in (0.1, 0.01)},
    "tst": {},
    "s5": {},
    **{f"{name} step {step}": {"step": step} for name in ("ode_rnn", "neural_cde") for step in (0.1, 0.01)},
}
_UNITS = {"ms": "ms", "mb": "MB"}
_MISSING = Entry("-", faint=True)


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


def accuracy_grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed, the small sets first."""
    return [
        Cell("efficiency-accuracy", data, "drop0", model, seed, protocol)
        for seed in uea.SEEDS
        for data in DATA
        for model in ACCURATE
    ]


def run_accuracy(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Classifier(backbone=...)`` by the recipe of classification, no point dropped."""
    options = {"backbone": cell.model.partition(" ")[0], "backbone_options": ACCURATE[cell.model]}
    return uea.train(cell, options, budget, verbose)


def curve(metrics: Metrics, algorithm: str, quantity: str) -> list[tuple[int, float]]:
    """Lengths and what an algorithm takes there, "ms" or "mb", as :func:`run_growth` names them.

    Example:
        >>> from reproduction.efficiency import curve
        >>> curve({"spectral_ms_60": 2.0, "spectral_ms_30": 1.0, "spectral_mb_30": 5.0}, "spectral", "ms")
        [(30, 1.0), (60, 2.0)]
    """
    start = f"{algorithm}_{quantity}_"
    return sorted((int(key.removeprefix(start)), value) for key, value in metrics.items() if key.startswith(start))


def absent(cell: Cell) -> str | None:
    """Series of the growth are made here."""
    return None if cell.data == GENERATED else not_here(cell)


def cost_sheets(results: Results) -> list[Sheet]:
    """A training epoch of each model beside S5's, and growth of time and memory with the length of a series."""
    results = results.comparable
    sets = {cell.data: row for cell, row in results.rows.items() if cell.data != GENERATED}
    models = list(dict.fromkeys(model for row in sets.values() for model in row["configuration"]["models"]))
    lines = []
    for place in results.places:
        if place[0] == GENERATED:
            continue
        row = sets.get(place[0])
        missing = Entry("not run" if results.progress_at(place, ALL).runnable else "no data", faint=True)
        lines.append((Entry(place[0]), *(missing if row is None else _cost(place, row, model) for model in models)))
    title = "Time of a training epoch in epochs of S5 (lower is better); milliseconds; peak memory"
    sheets = [Sheet(title, ("data", *models), tuple(lines), notes=_busy(sets))] if sets else []
    for cell, row in results.rows.items():
        if cell.data == GENERATED:
            found = {
                (name, unit): dict(curve(row["metrics"], name, unit)) for name in ALGORITHMS.values() for unit in _UNITS
            }
            lengths = sorted({length for own in found.values() for length in own})
            body = tuple((Entry(str(n)), *(_number(own.get(n)) for own in found.values())) for n in lengths)
            heads = ("length", *(f"{name}, {_UNITS[unit]}" for name, unit in found))
            title = "Forward and backward of one series against its length"
            sheets.append(Sheet(title, heads, body, notes=_busy({GENERATED: row})))
    return sheets


def _busy(rows: dict[str, Row]) -> tuple[str, ...]:
    names = [name for name, row in rows.items() if row["details"].get("busy")]
    whose = "its" if len(names) == 1 else "their"
    said = f"The machine was busy with other work at {', '.join(names)}: {whose} times mean little."
    return (said,) if names else ()


def _cost(place: Place, row: Row, model: str) -> Entry:
    figures = row["metrics"]
    if f"{model}_time" not in figures:
        return _MISSING
    said = in_the_paper(place[0], model)
    text = f"{figures[f'{model}_time']:.2f}" + ("" if said is None else f"\npaper {said:.2f}")
    units = [f"{figures[f'{model}_{key}']:.0f} {unit}" for key, unit in _UNITS.items() if f"{model}_{key}" in figures]
    return Entry("\n".join([text, *units]))


def _number(value: float | None) -> Entry:
    return _MISSING if value is None else Entry(f"{value:.3g}")


def in_the_paper(data: str, model: str) -> float | None:
    """The paper's relative time; models that solve equations have steps of 0.1 there, which are their defaults here."""
    for name in (model, f"{model} step 0.1"):
        found = printed(TABLE, data, "drop0", name, "time")
        if found is not None:
            return found.value
    return None


def draw(rows: list[Row], path: Path) -> Path:
    """Draw time and memory against length, and a training epoch of each model; a panel without cells says so.

    Args:
        rows: of the experiment "efficiency", as :meth:`~reproduction.store.Store.rows` gives them.
        path: of the PNG.

    Raises:
        ValueError: there is no cell to draw.
    """
    growth: dict[str, float] = {}
    sets: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["table"] != TABLE:
            continue
        if row["data"] == GENERATED:
            growth = row["metrics"]
        else:
            sets[row["data"]] = row["metrics"]
    if not growth and not sets:
        raise ValueError(f"there is no cell of {TABLE} to draw: run `python -m reproduction {TABLE}` first")
    figure = new_figure(13, 4)
    time, memory, models = figure.subplots(1, 3)
    _draw_growth(time, growth, "ms", "Forward and backward of a series", TIME_TICKS)
    _draw_growth(memory, growth, "mb", "Its peak memory", MEMORY_TICKS)
    _draw_models(models, sets)
    return save(figure, path)


def _draw_growth(axes: Any, metrics: dict[str, float], quantity: str, title: str, ticks: dict[float, str]) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    quiet(axes)
    lengths: set[int] = set()
    heights: list[float] = []
    for algorithm, (label, colour) in LINES.items():
        # what is smaller than the system can tell has no place on a logarithmic axis
        points = [(length, value) for length, value in curve(metrics, algorithm, quantity) if value > 0]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, marker="o", markersize=3.5, linewidth=1.8, label=label)
        lengths.update(x)
        heights += y
    if not heights:
        _say(axes, "not run yet")
        return
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("observations in the series")
    axes.set_xticks(sorted(lengths), [str(n) for n in sorted(lengths)], fontsize=8)
    axes.set_yticks(*_within(ticks, min(heights), max(heights)), fontsize=8)
    axes.minorticks_off()
    if quantity == "mb":
        # one for both panels, where no line is in its way
        axes.legend(frameon=False, fontsize=8)


def _draw_models(axes: Any, sets: dict[str, dict[str, float]]) -> None:
    axes.set_title("A training epoch in S5's, each dot a data set", loc="left", fontsize=11)
    quiet(axes)
    ours = [
        (place, metrics[f"{model}_time"])
        for place, model in enumerate(MODELS)
        for metrics in sets.values()
        if f"{model}_time" in metrics
    ]
    if not ours:
        _say(axes, "not run yet")
        return
    told = [(place, in_the_paper(data, model)) for place, model in enumerate(MODELS) for data in sets]
    paper = [(place, value) for place, value in told if value is not None]
    axes.axvline(1, color=GREY, linewidth=1)
    # a little above and a little below the line of the model
    axes.plot([x for _, x in ours], [y - 0.12 for y, _ in ours], "o", color=BLUE, markersize=6, alpha=0.8, label="here")
    axes.plot(
        [x for _, x in paper], [y + 0.12 for y, _ in paper], "o", color=INK, markerfacecolor="none", label="paper"
    )
    axes.set_xscale("log")
    values = [x for _, x in ours + paper]
    axes.set_xticks(*_within(RATIO_TICKS, min(values), max(values)), fontsize=8)
    axes.set_yticks(range(len(MODELS)), [LABELS[model] for model in MODELS])
    axes.set_ylim(len(MODELS) - 0.5, -0.5)
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)


def _within(ticks: dict[float, str], low: float, high: float) -> tuple[list[float], list[str]]:
    shown = {at: text for at, text in ticks.items() if low / 2 <= at <= 2 * high}
    return list(shown), list(shown.values())


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK)
    axes.set_xticks([])
    axes.set_yticks([])


EXPERIMENT = Experiment(
    name=TABLE,
    title="Cost: a training epoch relative to S5's (no points dropped), and growth with the length",
    metrics=(Metric("contiformer_time", "ContiFormer's epoch in S5's", "min", ".2f"),),
    grid=grid,
    run=run,
    absent=absent,
    ours="",
    sheets=cost_sheets,
    alone=True,
    note="Times hold for the machine that they were measured on. The paper's are of a V100, with steps of 0.1.",
)
ACCURACY = Experiment(
    name="efficiency-accuracy",
    title="Cost: accuracy of the same models at the paper's step sizes (no points dropped)",
    metrics=uea.EXPERIMENT.metrics,
    grid=accuracy_grid,
    run=run_accuracy,
    version=uea.VERSION,
    absent=not_here,
    note="ContiFormer without a step has exact trajectories, with one the paper's algorithm: an ODE for each pair.",
    protocols=("honest", "paper"),
    paper=TABLE,
)
#: The cells are those of the table, which has the numbers.
FIGURE = replace(
    EXPERIMENT,
    name="fig-cost",
    title="Picture: time and memory against length, and against rivals",
    metrics=(),
    sheets=None,
    draw=draw,
)

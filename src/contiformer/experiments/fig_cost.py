"""The figure of costs: time and memory against the length of a series, and a training epoch of each model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from contiformer.benchmarks.backbones import MODELS, in_the_paper
from contiformer.benchmarks.picture import MEMORY_TICKS, TIME_TICKS
from contiformer.experiments import efficiency
from contiformer.experiments.efficiency import GENERATED, TABLE, curve
from contiformer.experiments.store import Row
from contiformer.reports.figures import BLUE, GREY, INK, ORANGE, new_figure, quiet, save

#: Label and colour of each algorithm.
LINES = {
    "pairwise": ("the paper's algorithm, all pairs", ORANGE),
    "spectral": ("ours, the same attention", BLUE),
    "transformer": ("torch's transformer layer", "0.5"),
}
LABELS = {"contiformer": "ContiFormer", "tst": "TST", "s5": "S5", "ode_rnn": "ODE-RNN", "neural_cde": "Neural CDE"}
RATIO_TICKS = {0.1: "0.1", 0.2: "0.2", 0.5: "0.5", 1.0: "1", 2.0: "2", 5.0: "5", 10.0: "10", 20.0: "20", 50.0: "50"}


def draw(rows: list[Row], path: Path) -> Path:
    """Draw what the cells of the table have; a panel whose cells are missing says so.

    Args:
        rows: of the experiment "efficiency", as :meth:`~contiformer.experiments.store.Store.rows` gives them.
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
        raise ValueError(f"there is no cell of {TABLE} to draw: run `contiformer reproduce {TABLE}` first")
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


#: The cells are those of the table, which has the numbers.
EXPERIMENT = replace(
    efficiency.EXPERIMENT,
    name="fig-cost",
    title="Picture: time and memory against length, and against rivals",
    metrics=(),
    draw=draw,
)

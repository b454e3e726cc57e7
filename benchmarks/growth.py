"""Growth of time and memory with the length of a sequence, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender, Shape, make_call
from benchmarks.memory import Job, PairwiseRunner, cost_in_fresh_process
from benchmarks.timing import interleave
from contiformer.plots import new_figure

FULL_GROWTH = (30, 60, 125, 250, 500, 1000, 2000, 4000)
QUICK_GROWTH = (30, 125, 500)
#: The paper's algorithm is followed while one pass takes less than this many seconds and fits in memory.
PATIENCE = 20.0
BUDGET = 1.5
LABELS: dict[Contender, str] = {
    "pairwise": "the paper's algorithm",
    "ours": "continuous attention (ours)",
    "layer": "torch transformer layer",
}
COLOURS: dict[Contender, str] = {"pairwise": "#c1553b", "ours": "#1f5fa8", "layer": "#7a7a7a"}
TIME_TICKS = {1.0: "1 ms", 1e1: "10 ms", 1e2: "0.1 s", 1e3: "1 s", 1e4: "10 s", 1e5: "100 s"}
MEMORY_TICKS = {1.0: "1 MB", 1e1: "10 MB", 1e2: "100 MB", 1e3: "1 GB", 1e4: "10 GB"}


@dataclass(frozen=True)
class GrowthPoint:
    """Time and peak memory of one contender at one length; None where it is not known."""

    contender: Contender
    length: int
    milliseconds: float | None
    peak_mb: float | None


def measure_growth(
    lengths: tuple[int, ...],
    pairwise: bool = True,
    threads: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> tuple[GrowthPoint, ...]:
    """Forward and backward of one sequence, for ours, torch's layer, and the paper's algorithm while it can."""
    points: list[GrowthPoint] = []
    runner = PairwiseRunner.probe(threads) if pairwise and lengths else None
    for length in lengths:
        notify(f"growth: {length}")
        shape = Shape(1, length)
        contenders: tuple[Contender, ...] = ("ours", "layer")
        calls = {str(name): make_call(name, shape) for name in contenders}
        timings = interleave(calls, budget=BUDGET, at_least=3, warm_up=1)
        for name in contenders:
            peak = cost_in_fresh_process(Job(name, shape, threads=threads)).peak_mb
            points.append(GrowthPoint(name, length, timings.milliseconds(name), peak))
        if runner is not None and can_follow(points, shape, runner):
            cost = runner.measure(shape, BUDGET, timeout=6 * PATIENCE).cost
            if cost.seconds is None:
                runner = None
            else:
                points.append(GrowthPoint("pairwise", length, 1000 * cost.seconds, cost.peak_mb))
    return tuple(points)


def can_follow(points: list[GrowthPoint], shape: Shape, runner: PairwiseRunner) -> bool:
    """Whether the paper's algorithm fits, and will take less than :data:`PATIENCE` if its time grows with the pairs."""
    known = [p for p in points if p.contender == "pairwise" and p.milliseconds is not None]
    expected = 0.0
    if known:
        last = known[-1]
        assert last.milliseconds is not None
        expected = last.milliseconds / 1000 * (shape.length / last.length) ** 2
    return runner.fits(shape) > 0 and expected < PATIENCE


def draw_growth(points: Sequence[GrowthPoint], path: Path) -> Path:
    """Two panels, time and memory against length, on logarithmic axes."""
    figure = new_figure(10, 4.2)
    time, memory = figure.subplots(1, 2)
    _panel(time, points, "milliseconds", "Time of one forward and backward pass", TIME_TICKS)
    _panel(memory, points, "peak_mb", "Peak memory above the import", MEMORY_TICKS)
    figure.savefig(path, dpi=160)
    return path


def _panel(axes: Any, points: Sequence[GrowthPoint], quantity: str, title: str, ticks: dict[float, str]) -> None:
    drawn: list[float] = []
    lengths = sorted({point.length for point in points})
    for contender in LABELS:
        line = [(p.length, getattr(p, quantity)) for p in points if p.contender == contender]
        line = [(x, y) for x, y in line if y is not None and y > 0]
        if not line:
            continue
        x, y = zip(*line)
        drawn += y
        axes.plot(x, y, color=COLOURS[contender], marker="o", markersize=3.5, linewidth=1.8, clip_on=False)
        _label(axes, contender, x, y)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if drawn:
        axes.set_ylim(min(drawn) / 2, max(drawn) * 1.6)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("observations in the sequence")
    axes.set_xticks(lengths, [f"{length}" for length in lengths], fontsize=8)
    shown = {at: text for at, text in ticks.items() if drawn and min(drawn) / 2 <= at <= 1.6 * max(drawn)}
    axes.set_yticks(list(shown), list(shown.values()), fontsize=8)
    axes.minorticks_off()
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _label(axes: Any, contender: Contender, x: Sequence[float], y: Sequence[float]) -> None:
    """Write the name beside the line: after its end, above its end, or below the middle of it."""
    middle = len(x) // 2
    place, offset, align = {
        "pairwise": (-1, (8, -3), "left"),
        "ours": (-1, (0, 9), "right"),
        "layer": (middle, (6, -13), "left"),
    }[contender]
    axes.annotate(
        LABELS[contender],
        (x[place], y[place]),
        xytext=offset,
        textcoords="offset points",
        color=COLOURS[contender],
        fontsize=9,
        ha=align,
        annotation_clip=False,
    )

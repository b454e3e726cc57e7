"""The picture of how time and memory grow with the length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contiformer.benchmarks.contenders import Contender
from contiformer.benchmarks.growth import GrowthPoint

LABELS: dict[Contender, str] = {
    "pairwise": "the paper's algorithm",
    "ours": "continuous attention (ours)",
    "layer": "torch transformer layer",
}
COLOURS: dict[Contender, str] = {"pairwise": "#c1553b", "ours": "#1f5fa8", "layer": "#7a7a7a"}
TIME_TICKS = {1.0: "1 ms", 1e1: "10 ms", 1e2: "0.1 s", 1e3: "1 s", 1e4: "10 s", 1e5: "100 s"}
MEMORY_TICKS = {1.0: "1 MB", 1e1: "10 MB", 1e2: "100 MB", 1e3: "1 GB", 1e4: "10 GB"}


class PlotExtraMissingError(RuntimeError):
    """There is nothing to draw with."""


def draw_growth(points: Sequence[GrowthPoint], path: Path) -> Path:
    """Two panels, time and memory against length, on logarithmic axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise PlotExtraMissingError(
            f"{path.name} is not drawn, because matplotlib is not installed: pip install 'contiformer[plot]'"
        ) from error
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
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

"""Learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contiformer.reports.figures import BLUE, GREY, INK, ORANGE, new_figure, quiet, save

History = Sequence[dict[str, float]]
_NOT_METRICS = ("round", "step", "train_loss")


def draw_learning(histories: Sequence[History], path: Path, monitor: str, mode: str) -> Path:
    """The training loss, and the metric that the epoch was chosen by, with the choice marked.

    Args:
        histories: rows of ``history.csv``, one list for each member.
        path: of the picture.
        monitor: the metric to choose by.
        mode: "min" or "max".
    """
    others = [name for name in histories[0][0] if name not in (*_NOT_METRICS, monitor, "score", "nll")][:1]
    shown = ["train_loss", monitor, *others]
    figure = new_figure(3.6 * len(shown), 3.0)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, name in zip(panels, shown, strict=True):
        for n, history in enumerate(histories):
            several = len(histories) > 1
            epochs = [row["round"] + 1 for row in history]
            values = [row[name] for row in history]
            colour = BLUE if not several else GREY if n else BLUE
            few = len(epochs) < 30
            panel.plot(epochs, values, color=colour, linewidth=1.5, marker="o" if few else None, markersize=3)
            best = (min if mode == "min" else max)(range(len(history)), key=lambda k: history[k][monitor])
            if name != "train_loss":
                panel.plot(epochs[best], values[best], "o", color=ORANGE, markersize=6, zorder=3)
            if name == monitor and not several:
                panel.annotate(
                    f"kept: epoch {epochs[best]:.0f}, {values[best]:.3g}",
                    (epochs[best], values[best]),
                    xytext=(0.97, 0.95),
                    textcoords="axes fraction",
                    ha="right",
                    va="top",
                    color=INK,
                    fontsize=8,
                    arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.8},
                )
        label = "training loss" if name == "train_loss" else f"validation {_plain(name)}"
        panel.set(xlabel="epoch", title=label)
        panel.title.set_fontsize(10)
        if name == "train_loss" and min(row[name] for history in histories for row in history) > 0:
            panel.set_yscale("log")
        quiet(panel)
    return save(figure, path)


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("coverage90", "coverage of 90 % intervals")

"""Learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contiformer.reports.figures import BLUE, GREY, INK, ORANGE, new_figure, quiet, save

History = Sequence[dict[str, float]]
#: The first of these that there is gets a panel beside the metric that was chosen by.
_ALSO = ("accuracy", "rmse")


def draw_learning(histories: Sequence[History], path: Path, monitor: str, mode: str) -> Path:
    """The training loss, and the metric that the epoch was chosen by, with the choice marked.

    Args:
        histories: rows of ``history.csv``, one list for each member.
        path: of the picture.
        monitor: the metric to choose by.
        mode: "min" or "max".
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    others = [name for name in _ALSO if name in histories[0][0] and name != monitor][:1]
    shown = list(dict.fromkeys(["train_loss", monitor, *others]))
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
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        numbers = [row[name] for history in histories for row in history]
        if name == "train_loss" and 0 < 10 * min(numbers) < max(numbers):
            panel.set_yscale("log")
        quiet(panel)
    return save(figure, path)


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("coverage90", "coverage of 90 % intervals")

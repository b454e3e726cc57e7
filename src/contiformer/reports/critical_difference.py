"""Mean ranks of models on a line; a bar joins those that cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from pathlib import Path

from contiformer.reports.figures import BLUE, GREY, INK, new_figure, save

_ROW, _BAR = 1.0, 0.45
#: Inches: the line of ranks, the least room beside it, and a letter of a name in bold.
_LINE, _LEAST, _LETTER = 5.2, 1.65, 0.1
#: Letters that a rank takes beside its name.
_RANK = 7


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[str, str]]:
    """The longest runs of neighbours that are closer than the difference, by their first and last.

    Example:
        >>> cliques({"a": 1.0, "b": 2.0, "c": 4.0}, 1.5)
        [('a', 'b')]
    """
    order = sorted(ranks, key=ranks.__getitem__)
    found: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = max(n for n in range(first, len(order)) if ranks[order[n]] - ranks[order[first]] < difference)
        if last > first and not (found and last <= found[-1][1]):
            found.append((first, last))
    return [(order[first], order[last]) for first, last in found]


def draw_critical_difference(
    ranks: Mapping[str, float], difference: float, path: Path, *, ours: str | None = None, title: str = ""
) -> Path:
    """Write a PNG: the better half at the left, the rest at the right, our model in blue.

    Args:
        ranks: mean rank of each model.
        difference: mean ranks that are closer cannot be told apart.
        path: of the picture.
        ours: the model to point out.
        title: said above.
    """
    order = sorted(ranks, key=ranks.__getitem__)
    half, bars = ceil(len(order) / 2), cliques(ranks, difference)
    low, high = floor(min(ranks.values())), ceil(max(ranks.values()))
    low, high = min(low, 1), max(high, len(order))
    top = _BAR * (len(bars) + 1)
    room = max(_LEAST, _LETTER * (max(map(len, order)) + _RANK))
    figure = new_figure(_LINE + 2 * room, 1.5 + 0.32 * (half + top))
    axes = figure.subplots()
    axes.set_axis_off()
    margin = 0.03 * (high - low)
    beside = room / _LINE * (high - low)
    axes.set_xlim(low - beside, high + beside)
    axes.set_ylim(-top - half * _ROW, 2.6)

    axes.plot([low, high], [0, 0], color=INK, linewidth=1.2)
    for tick in range(low, high + 1):
        axes.plot([tick, tick], [0, 0.25], color=INK, linewidth=1)
        axes.text(tick, 0.4, str(tick), ha="center", va="bottom", color=INK, fontsize=9)
    axes.plot([low, low + difference], [1.75, 1.75], color=INK, linewidth=1.6, marker="|", markersize=7)
    axes.text(low + difference / 2, 1.95, f"critical difference {difference:.2f}", ha="center", va="bottom", fontsize=9)

    for number, (first, last) in enumerate(bars):
        height = -_BAR * (number + 1)
        axes.plot([ranks[first] - margin / 3, ranks[last] + margin / 3], [height] * 2, color=GREY, linewidth=5)
    for number, model in enumerate(order):
        left = number < half
        row = number if left else len(order) - 1 - number
        height, end = -top - (row + 0.5) * _ROW, low - margin if left else high + margin
        colour = BLUE if model == ours else INK
        axes.plot([ranks[model], ranks[model], end], [0, height, height], color=colour, linewidth=1)
        axes.plot(ranks[model], 0, "o", color=colour, markersize=4)
        label = f"{model}  {ranks[model]:.2f}" if left else f"{ranks[model]:.2f}  {model}"
        weight = "bold" if model == ours else "normal"
        side = "right" if left else "left"
        axes.text(end - margin / 2 if left else end + margin / 2, height, label, ha=side, va="center", color=colour,
                  fontsize=10, fontweight=weight)  # fmt: skip
    # of the figure: above the axes it would begin where the names on the left end
    figure.suptitle(title, fontsize=10, color=INK, x=0.01, ha="left")
    return save(figure, path)

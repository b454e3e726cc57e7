"""Confusion matrix and reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from contiformer.plots.figures import BLUE, GREY, ON_LIGHT, new_figure, quiet, save
from contiformer.tasks.scores import calibration_error

_NUMBERS_UP_TO = 16
_BINS = 10


def confusion(label: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], classes: int) -> Int[np.ndarray, "c c"]:
    """The confusion matrix: a row for each true class.

    Example:
        >>> import numpy as np
        >>> from contiformer.plots.classes import confusion
        >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (label, predicted), 1)
    return counts


def draw_confusion(
    label: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], classes: Sequence[Any], path: Path, title: str
) -> Path:
    """A row for each true class, coloured by the share of it that got each answer."""
    count = len(classes)
    counts = confusion(label, predicted, count)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = min(10.0, max(3.4, 0.42 * count + 1.8))
    figure = new_figure(size + 0.6, size)
    panel = figure.subplots()
    image = panel.imshow(share, cmap="Blues", vmin=0, vmax=1)
    names = [str(c) for c in classes]
    long = max(map(len, names)) > 3
    panel.set_xticks(range(count), names, rotation=45 if long else 0, ha="right" if long else "center", fontsize=8)
    panel.set_yticks(range(count), names, fontsize=8)
    panel.set(xlabel="predicted", ylabel="true")
    panel.set_title(f"{title}\n{(label == predicted).mean():.1%} right", fontsize=10)
    if count <= _NUMBERS_UP_TO:
        for i, j in zip(*np.nonzero(counts), strict=True):
            colour = "white" if share[i, j] > 0.55 else ON_LIGHT
            panel.text(j, i, counts[i, j], ha="center", va="center", color=colour, fontsize=8)
    bar = figure.colorbar(image, ax=panel, shrink=0.8)
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return save(figure, path)


class Reliability(NamedTuple):
    """Bins of equal width that hold series: mean confidence, how often it was right with 95 % interval, and series.

    ``second``: there are two classes, the confidence is the probability of the second and "right" that it occurred;
    otherwise the confidence is that of the answer.
    """

    bins: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    share: Float[np.ndarray, " bins"]
    series: Int[np.ndarray, " bins"]
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    second: bool


def reliability(probability: Float[np.ndarray, "n classes"], label: Int[np.ndarray, " n"]) -> Reliability:
    """The numbers of a reliability diagram.

    Example:
        >>> import numpy as np
        >>> from contiformer.plots.classes import reliability
        >>> reliability(np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]), np.array([0, 1, 0])).share.tolist()
        [0.0, 1.0, 0.0]
    """
    second = probability.shape[1] == 2
    sure = probability[:, 1] if second else probability.max(1)
    right = (label == 1) if second else probability.argmax(1) == label
    inside = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    bins, place, count = np.unique(inside, return_inverse=True, return_counts=True)
    confidence, share = (np.bincount(place, x, len(bins)) / count for x in (sure, right.astype(float)))
    return Reliability(bins, confidence, share, count, *wilson(share, count), second)


def draw_reliability(
    probability: Float[np.ndarray, "n classes"], label: Int[np.ndarray, " n"], path: Path, title: str
) -> Path:
    """Reliability diagram: accuracy against confidence, and the distribution of the confidence.

    With two classes it is the probability of the second and how often it occurred, otherwise that of the answer.
    """
    found = reliability(probability, label)
    figure = new_figure(3.8, 4.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="perfectly calibrated")
    above.vlines(found.confidence, found.low, found.high, color=BLUE, alpha=0.35, linewidth=2.5)
    marks = {"color": BLUE, "markersize": 4, "linewidth": 1.2}
    above.plot(found.confidence, found.share, "o-", label="observed, with 95 % interval", **marks)
    above.set(ylim=(-0.03, 1.03), ylabel="how often it occurred" if found.second else "how often it was right")
    above.set_title(f"{title}\nexpected calibration error {calibration_error(probability, label):.3f}", fontsize=10)
    above.legend(frameon=False, fontsize=8, loc="upper left")
    below.bar((found.bins + 0.5) / _BINS, found.series, 0.92 / _BINS, color=BLUE)
    what = "probability of the second class" if found.second else "probability of the answer"
    below.set(xlabel=what, ylabel="series", xlim=(0, 1))
    quiet(above)
    quiet(below)
    return save(figure, path)


def wilson(share: Any, count: Any, z: float = 1.96) -> tuple[Any, Any]:
    """Wilson's interval for a share."""
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return centre - half, centre + half

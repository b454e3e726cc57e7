"""Means, ranks and tests over the cells of a table, and the critical-difference diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from contiformer.plots import BLUE, GREY, INK, new_figure, save
from reproduction.experiments import Metric
from reproduction.results import Place, Results, better_or_equal

#: With fewer data sets no outcome of the signed-rank test has p < 0.05, with fewer repeats there is no t-test.
FEWEST_SETS, FEWEST_REPEATS = 6, 2
#: With fewer there is no critical difference worth drawing.
FEWEST_RANKED_SETS, FEWEST_RANKED_MODELS = 3, 3


@dataclass(frozen=True)
class Spread:
    """A mean over repeats; one repeat has no spread.

    Attributes:
        mean: of the repeats.
        std: standard deviation, with n - 1.
        error: standard error of the mean.
        n: repeats.
    """

    mean: float
    std: float | None
    error: float | None
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Mean and spread of one repeat or more.

    Example:
        >>> from reproduction.comparison import spread
        >>> spread([0.8, 0.9, 1.0])  # doctest: +ELLIPSIS
        Spread(mean=0.9, std=0.0999..., error=0.0577..., n=3)
    """
    if len(values) == 1:
        return Spread(float(values[0]), None, None, 1)
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)), float(stats.sem(values)), len(values))


def ranks(values: Mapping[str, float], metric: Metric) -> dict[str, int]:
    """Ranks from 1, the best; ties have the lowest, NaN comes last.

    Example:
        >>> from reproduction.comparison import ranks
        >>> from reproduction.experiments import Metric
        >>> ranks({"a": 0.7, "b": 0.9, "c": 0.9}, Metric("accuracy", "accuracy", "max"))
        {'a': 3, 'b': 1, 'c': 1}
    """
    found = stats.rankdata(_costs(list(values.values()), metric), method="min")
    return {model: int(rank) for model, rank in zip(values, found, strict=True)}


@dataclass(frozen=True)
class Average:
    """A model over many cells, and the paper's numbers over exactly the same ones (None where it lacks any)."""

    model: str
    mean: float
    rank: float
    paper_mean: float | None
    paper_rank: float | None


def averages(results: Results, metric: Metric, models: Sequence[str], places: Sequence[Place]) -> list[Average]:
    """Mean and mean rank of each model over these places, in all of which the models have repeats in common."""
    means = [_means(results, place, models, metric) for place in places]
    ours = [ranks(one, metric) for one in means]
    said = [{model: results.printed(place, model, metric) for model in models} for place in places]
    printed = [{model: number.value for model, number in one.items() if number is not None} for one in said]
    whole = all(len(one) == len(models) for one in printed)
    theirs = [ranks(one, metric) for one in printed] if whole else []
    return [
        Average(
            model,
            float(np.mean([one[model] for one in means])),
            float(np.mean([one[model] for one in ours])),
            float(np.mean([one[model] for one in printed])) if all(model in one for one in printed) else None,
            float(np.mean([one[model] for one in theirs])) if whole else None,
        )
        for model in models
    ]


@dataclass(frozen=True)
class Comparison:
    """Our model and another over the cells that both have.

    Attributes:
        rival: the other.
        cells: places that both have.
        sets: data sets among them.
        wins, losses: places in which ours is better or worse.
        mean, rival_mean: over these places.
        p: Wilcoxon's signed-rank test over data sets, None where there are too few for it.
    """

    rival: str
    cells: int
    sets: int
    wins: int
    losses: int
    mean: float
    rival_mean: float
    p: float | None


def comparisons(results: Results, metric: Metric) -> list[Comparison]:
    """Our model against each other one, variants too."""
    ours, found = results.experiment.ours, []
    for rival in results.models:
        places = results.common_places([ours, rival], metric) if rival != ours else []
        if not places:
            continue
        pairs = [_means(results, place, [ours, rival], metric) for place in places]
        of_sets = _by_data(places, [pair[ours] - pair[rival] for pair in pairs])
        found.append(
            Comparison(
                rival,
                len(places),
                len(of_sets),
                sum(metric.is_better(pair[ours], pair[rival]) for pair in pairs),
                sum(metric.is_better(pair[rival], pair[ours]) for pair in pairs),
                float(np.mean([pair[ours] for pair in pairs])),
                float(np.mean([pair[rival] for pair in pairs])),
                signed_rank_p(list(of_sets.values())),
            )
        )
    return found


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Wilcoxon's test that paired differences are as often up as down."""
    if len(differences) < FEWEST_SETS or not np.isfinite(differences).all():
        return None
    if not np.any(differences):
        return 1.0
    return float(stats.wilcoxon(differences).pvalue)


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Student's t-test over repeats in pairs; None for too few, or when every pair differs by the same."""
    differences = np.subtract(ours, theirs)
    if len(ours) < FEWEST_REPEATS or np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    p = float(stats.ttest_rel(ours, theirs).pvalue)
    return None if np.isnan(p) else p


@dataclass(frozen=True)
class AgainstPaper:
    """Our model and the paper's own numbers for it over the cells that both have.

    Attributes:
        cells, sets: places that both have, and data sets among them.
        reached: places in which ours is not worse, as far as the printed digits tell.
        matched: places among them in which the paper's is not worse either.
        mean, paper_mean: over these places.
    """

    cells: int
    sets: int
    reached: int
    matched: int
    mean: float
    paper_mean: float


def against_paper(results: Results, metric: Metric, model: str) -> AgainstPaper | None:
    """Compare with the paper's numbers; None where no cell is both here and printed."""
    pairs = {
        place: (spread(list(values.values())).mean, said.value)
        for place in results.places
        if (values := results.values(place, model, metric)) and (said := results.printed(place, model, metric))
    }
    if not pairs:
        return None
    reached = [pair for pair in pairs.values() if better_or_equal(metric, *pair)]
    matched = sum(better_or_equal(metric, there, here) for here, there in reached)
    here, there = np.mean(list(pairs.values()), axis=0)
    sets = len({data for data, _ in pairs})
    return AgainstPaper(len(pairs), sets, len(reached), matched, float(here), float(there))


@dataclass(frozen=True)
class CriticalDifference:
    """Models ranked over data sets.

    Attributes:
        ranks: mean rank of each model, equal ones sharing theirs, as the tests have it.
        sets: number of data sets.
        p: Friedman's test that all models are alike.
        difference: Nemenyi's at 5 %: mean ranks that are closer cannot be told apart.
    """

    ranks: dict[str, float]
    sets: int
    p: float
    difference: float


def critical_difference(results: Results, metric: Metric) -> CriticalDifference | None:
    """Over the data sets that all models have, each the mean of its settings; None for too few sets or models."""
    models = results.ranked_models(metric)
    places = results.common_places(models, metric)
    means = [_means(results, place, models, metric) for place in places]
    columns = {model: list(_by_data(places, [one[model] for one in means]).values()) for model in models}
    sets = len({data for data, _ in places})
    if sets < FEWEST_RANKED_SETS or len(models) < FEWEST_RANKED_MODELS:
        return None
    return friedman(columns, metric)


def friedman(columns: Mapping[str, Sequence[float]], metric: Metric) -> CriticalDifference:
    """Friedman's test and Nemenyi's critical difference over the figures of each model, one per data set."""
    costs = np.stack([_costs(column, metric) for column in columns.values()])
    models, sets = costs.shape
    mean_ranks = stats.rankdata(costs, axis=0).mean(1)
    p = 1.0 if (costs == costs[0]).all() else float(stats.friedmanchisquare(*costs).pvalue)
    q = stats.studentized_range.ppf(0.95, models, np.inf) / np.sqrt(2)
    difference = float(q * np.sqrt(models * (models + 1) / (6 * sets)))
    return CriticalDifference(dict(zip(columns, map(float, mean_ranks), strict=True)), sets, p, difference)


def _means(results: Results, place: Place, models: Sequence[str], metric: Metric) -> dict[str, float]:
    # means of the same figures in another order may differ in their last bit, and are no less equal
    return {model: float(f"{np.mean(values):.12g}") for model, values in results.common(place, models, metric).items()}


def _by_data(places: Sequence[Place], values: Sequence[float]) -> dict[str, float]:
    """Means over the settings of each data set: only data sets are independent of each other."""
    found: dict[str, list[float]] = {}
    for (data, _), value in zip(places, values, strict=True):
        found.setdefault(data, []).append(value)
    return {data: float(np.mean(own)) for data, own in found.items()}


def _costs(values: Sequence[float], metric: Metric) -> NDArray[np.float64]:
    costs = np.asarray(values, dtype=float) * (-1 if metric.better == "max" else 1)
    return np.where(np.isnan(costs), np.inf, costs)


_ROW, _BAR = 1.0, 0.45
#: Inches: the line of ranks, the least room beside it, and a letter of a name in bold.
_LINE, _LEAST, _LETTER = 5.2, 1.65, 0.1
#: Letters that a rank takes beside its name.
_RANK = 7


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[str, str]]:
    """The longest runs of neighbours that are closer than the difference, by their first and last.

    Example:
        >>> from reproduction.comparison import cliques
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

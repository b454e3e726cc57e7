"""Who is ahead: averages, ranks and tests of a table, for readers."""

from __future__ import annotations

from dataclasses import dataclass

from contiformer.experiments.experiment import Metric
from contiformer.experiments.results import Place, Results
from contiformer.experiments.summary import FEWEST_SETS, against_paper, averages, comparisons, ranks
from contiformer.experiments.tables import NOTHING, about, p_against_ours, verdict
from contiformer.reports.sheet import Entry, Sheet

#: Figures that mean the same on every data set, so that a mean over data sets says something.
COMPARABLE = ("accuracy",)
#: Fewer repeats say little in a t-test; a table of them is only shown from here on.
REPEATS_WORTH_A_TEST = 5
_RANK = Metric("rank", "rank", "min", ".2f")
_NONE = Entry(NOTHING, faint=True)


def average_sheets(results: Results) -> list[Sheet]:
    """For each metric: means and mean ranks over the cells that all models have, the paper's over the same cells.

    None where no model is ours: there is nobody to rank.
    """
    metrics = results.experiment.metrics if results.experiment.ours else ()
    return [sheet for metric in metrics if (sheet := _average_sheet(results, metric))]


def rival_sheets(results: Results) -> list[Sheet]:
    """For each metric: our model against each other one, and against the paper's numbers for it."""
    return [sheet for metric in results.experiment.metrics if (sheet := _rival_sheet(results, metric))]


def t_test_sheets(results: Results) -> list[Sheet]:
    """For each metric: paired t-tests within each data set, where there are repeats enough."""
    return [sheet for metric in results.experiment.metrics if (sheet := _test_sheet(results, metric))]


@dataclass(frozen=True)
class VerdictCounts:
    """In how many places our model is the best, close to it, behind, or has nothing to be compared with there.

    Attributes:
        best, close, behind, alone: how many; close is within one standard error.
        reached: places in which it is not worse than the paper's number for it.
        printed: places in which there is such a number.
    """

    best: int
    close: int
    behind: int
    alone: int
    reached: int
    printed: int


def verdict_counts(results: Results, metric: Metric) -> VerdictCounts:
    """Over all places where our model has the figure."""
    places = [place for place in results.places if results.values(place, results.experiment.ours, metric)]
    words = [verdict(results, place, metric) for place in places]
    best, close, behind = (sum(said.startswith(start) for said in words) for start in ("best", "within", "behind"))
    paper = against_paper(results, metric, results.experiment.ours)
    reached, printed = (paper.reached, paper.cells) if paper else (0, 0)
    return VerdictCounts(best, close, behind, len(words) - best - close - behind, reached, printed)


def _average_sheet(results: Results, metric: Metric) -> Sheet | None:
    models = results.compared(metric)
    places = results.common_places(models, metric) if len(models) > 1 else []
    if len(places) < 2:
        return None
    heads, columns = [], []
    for name, cells, meaningful in _groups(metric, places):
        found = averages(results, metric, models, cells)
        if meaningful:
            heads.append(f"{name} ({len(cells)}): mean")
            columns.append(_column([one.mean for one in found], [one.paper_mean for one in found], metric))
        heads.append(f"{name} ({len(cells)}): rank")
        columns.append(_column([one.rank for one in found], [one.paper_rank for one in found], _RANK))
    lines = tuple((Entry(model), *fields) for model, *fields in zip(models, *columns, strict=True))
    title = f"{about(results, metric)}: averages over the {len(places)} cells that all {len(models)} models have"
    notes = [
        "In brackets the number of cells (data sets and settings). A cell is the mean of the repeats that all models "
        "have; ranks count from 1, equal ones have the lowest. The paper's are over exactly the same cells and models."
    ]
    if missing := [model for model in results.models if model not in models]:
        notes.append(f"Not run: {', '.join(missing)}.")
    return Sheet(title, ("model", *heads), lines, notes=tuple(notes))


def _groups(metric: Metric, places: list[Place]) -> list[tuple[str, list[Place], bool]]:
    """Names of groups of cells, the cells, and whether a mean over them says something."""
    settings = list(dict.fromkeys(setting for _, setting in places))
    data = list(dict.fromkeys(name for name, _ in places))
    comparable = metric.key in COMPARABLE
    groups: list[tuple[str, list[Place], bool]] = []
    if comparable and len(settings) > 1:
        groups += [(name, [place for place in places if place[1] == name], True) for name in settings]
    elif len(settings) > 1 and len(data) > 1:
        groups += [(name, [place for place in places if place[0] == name], True) for name in data]
    return [*groups, ("all", places, comparable or len(data) == 1)]


def _column(here: list[float], there: list[float | None], metric: Metric) -> list[Entry]:
    order = ranks(dict(zip(map(str, range(len(here))), here, strict=True)), metric).values()
    return [
        Entry(f"{a:{metric.form}}" + ("" if b is None else f"\npaper {b:{metric.form}}"), strong=rank == 1)
        for a, b, rank in zip(here, there, order, strict=True)
    ]


def _rival_sheet(results: Results, metric: Metric) -> Sheet | None:
    ours = results.experiment.ours
    found, paper = comparisons(results, metric), against_paper(results, metric, ours)

    def means(here: float, there: float, sets: int) -> list[Entry]:
        if metric.key not in COMPARABLE and sets > 1:
            return [_NONE] * 3
        return [
            Entry(f"{here:{metric.form}}"),
            Entry(f"{there:{metric.form}}"),
            Entry(f"{here - there:+{metric.form}}"),
        ]

    lines = [
        (
            Entry(one.rival),
            Entry(str(one.cells)),
            Entry(str(one.sets)),
            Entry(f"{one.wins} / {one.cells - one.wins - one.losses} / {one.losses}"),
            *means(one.mean, one.rival_mean, one.sets),
            _NONE if one.p is None else Entry(f"{one.p:.2g}"),
        )
        for one in found
    ]
    if paper is not None:
        counts = f"{paper.reached - paper.matched} / {paper.matched} / {paper.cells - paper.reached}"
        names = (f"{ours} in the paper", str(paper.cells), str(paper.sets), counts)
        lines.append((*map(Entry, names), *means(paper.mean, paper.paper_mean, paper.sets), _NONE))
    if not lines:
        return None
    heads = ("against", "cells", "sets", "won / even / lost", "ours", "theirs", "difference", "p")
    note = (
        "Means over the cells (data sets and settings) that both have. p: Wilcoxon's signed-rank test over data sets; "
        f"with fewer than {FEWEST_SETS} none could be below 0.05."
    )
    return Sheet(f"{about(results, metric)}: {ours} against each of the others", heads, tuple(lines), notes=(note,))


def _test_sheet(results: Results, metric: Metric) -> Sheet | None:
    ours = results.experiment.ours
    rivals = [model for model in results.compared(metric) if model != ours]
    lines = []
    for place in results.places:
        shared = {model: results.common(place, [ours, model], metric) for model in rivals}
        if max((len(one[ours]) for one in shared.values() if one), default=0) < REPEATS_WORTH_A_TEST:
            continue
        fields = []
        for model in rivals:
            p, said = p_against_ours(results, place, model, metric), results.printed(place, model, f"{metric.key}_p")
            n = len(shared[model][ours]) if shared[model] else 0
            paper = "" if said is None else f"\npaper {said.value:.2g}"
            fields.append(Entry(NOTHING + paper, faint=True) if p is None else Entry(f"{p:.2g} ({n}){paper}"))
        lines.append((Entry(" ".join(filter(None, place))), *fields))
    if not lines:
        return None
    title = f"{about(results, metric)}: p of paired t-tests of {ours} against the others (pairs)"
    return Sheet(title, ("data", *rivals), tuple(lines))

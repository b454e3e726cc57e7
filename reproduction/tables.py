"""Tables for readers: our numbers beside the paper's, averages and ranks, comparisons and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contiformer.plots import Entry, Sheet
from reproduction.comparison import FEWEST_SETS, against_paper, averages, comparisons, paired_p, ranks, spread
from reproduction.experiments import Metric
from reproduction.results import Place, Results, better_or_equal

NOT_RUN, NO_DATA, NOTHING = "not run", "no data", "-"
#: Behind a number that rests on stale cells.
STALE = "†"
#: Before the name of a metric: of the last epoch of the same training.
LAST = "last_"
#: Metrics that mean the same on every data set, so that a mean over data sets says something.
COMPARABLE = ("accuracy",)
#: Fewer repeats say little in a t-test; a table of them is only shown from here on.
REPEATS_WORTH_A_TEST = 5
_BETTER = {"max": "higher is better", "min": "lower is better"}
_RANK = Metric("rank", "rank", "min", ".2f")
_NONE = Entry(NOTHING, faint=True)
_SELECTION_NOTE = (
    "Left: the best test epoch against the last epoch of the same training, kept without choice. Right: the paper's "
    "protocol against the honest one, only repeats that were run under both; where a set has no validation part (UEA), "
    "the honest one also learns from less, as it keeps some training data for choosing. A gain below 0 is a loss."
)


def main_sheets(results: Results) -> list[Sheet]:
    """One table for each metric: lines are data sets and settings, columns models, and the verdict on ours."""
    if results.experiment.sheets is not None:
        return results.experiment.sheets(results)
    return [_main_sheet(results, metric) for metric in results.experiment.metrics]


def about(results: Results, metric: Metric) -> str:
    """The beginning of a title: metric and protocol."""
    return f"{metric.label} ({_BETTER[metric.better]}), {results.protocol} protocol"


def verdict(results: Results, place: Place, metric: Metric) -> str:
    """Our model in a place among all that have repeats on equal data in common with it."""
    ours = results.experiment.ours
    own = results.values(place, ours, metric)
    if not own:
        return NOTHING
    rivals = [
        model
        for model in results.ranked_models(metric)
        if model != ours and results.common(place, [ours, model], metric)
    ]
    if not rivals:
        return "alone so far"
    common = results.common(place, [ours, *rivals], metric)
    if not common:
        return "no repeat that all have"
    spreads = {model: spread(values) for model, values in common.items()}
    order = ranks({model: one.mean for model, one in spreads.items()}, metric)
    best = min(rivals, key=order.__getitem__)
    gap = abs(spreads[best].mean - spreads[ours].mean)
    # the means beside it are over all repeats of each model
    n, most = len(common[ours]), max(len(results.values(place, model, metric)) for model in common)
    few = "" if n == most else f" (over {_repeats(n)} that all have)"
    if better_or_equal(metric, spreads[ours].mean, spreads[best].mean):
        return f"best{few}"
    error = spreads[best].error
    if error is not None and gap <= error:
        return f"within one standard error of the best, {best}{few}"
    return f"behind {best} by {gap:{metric.form}}{few}"


def paper_verdict(results: Results, place: Place, metric: Metric) -> str:
    """Our model in a place against the paper's number for it."""
    values = results.values(place, results.experiment.ours, metric)
    said = results.printed(place, results.experiment.ours, metric)
    if not values or said is None:
        return ""
    mean = spread(list(values.values())).mean
    gap = f"{abs(mean - said.value):{metric.form}}"
    if better_or_equal(metric, mean, said.value):
        return "at or above the paper" if metric.better == "max" else "at or below the paper"
    return f"below the paper by {gap}" if metric.better == "max" else f"above the paper by {gap}"


def _missing(results: Results, place: Place, model: str) -> str:
    progress = results.progress_at(place, model)
    if progress.done or progress.stale or not progress.all:
        return NOTHING
    return NOT_RUN if progress.runnable else NO_DATA


def p_against_ours(results: Results, place: Place, model: str, metric: Metric) -> float | None:
    """p of a paired t-test over the repeats on equal data that our model and this one have in a place."""
    ours = results.experiment.ours
    common = results.common(place, [ours, model], metric) if model != ours else {}
    return paired_p(common[ours], common[model]) if common else None


def _main_sheet(results: Results, metric: Metric) -> Sheet:
    begun = [place for place in results.places if any(_count(results, place, model) for model in results.models)]
    shown = [place for place in begun if any(results.values(place, model, metric) for model in results.models)]
    settings, ours = any(setting for _, setting in results.places), results.experiment.ours
    lines = []
    for place in shown:
        means = {
            model: spread(list(values.values())).mean
            for model in results.models
            if (values := results.values(place, model, metric))
        }
        # stale numbers are compared with one another only
        valid = {model: mean for model, mean in means.items() if not results.is_stale(place, model, metric)}
        order = ranks(valid or means, metric)
        names = [Entry(place[0]), Entry(place[1])] if settings else [Entry(place[0])]
        fields = [_field(results, place, model, metric, order.get(model) == 1) for model in results.models]
        mark = f" {STALE}" if results.is_stale(place, ours, metric) else ""
        words = [word + mark for word in (verdict(results, place, metric),) if word]
        words += [word for word in (paper_verdict(results, place, metric),) if word]
        lines.append((*names, *fields, *([Entry("\n".join(words))] if ours else [])))
    heads = ("data", "setting") if settings else ("data",)
    title = f"{about(results, metric)}: mean ± standard deviation (repeats)"
    notes = _missing_places(results, [place for place in results.places if place not in begun])
    if without := dict.fromkeys(data for data, setting in begun if (data, setting) not in shown):
        notes = (f"Without this figure: {', '.join(without)}.", *notes)
    if any(STALE in entry.text for line in lines for entry in line):
        notes = (*notes, stale_note(results))
    columns = (*heads, *results.models, *([f"verdict on {ours}"] if ours else []))
    return Sheet(title, columns, tuple(lines), len(heads), int(bool(ours)), notes)


def stale_reasons(results: Results) -> str:
    """Reasons why cells are stale, with their numbers."""
    counts = Counter(results.stale.values())
    return "; ".join(f"{reason} ({_of_cells(count)})" for reason, count in counts.most_common())


def stale_note(results: Results) -> str:
    """The legend of the mark of stale numbers."""
    return (
        f"{STALE} Stale: {stale_reasons(results)}. Stale cells count as not run. They are shown only where there are "
        "no others, are compared with one another only, and are in no average, rank or test."
    )


def _count(results: Results, place: Place, model: str) -> int:
    progress = results.progress_at(place, model)
    return progress.done + progress.stale


def _field(results: Results, place: Place, model: str, metric: Metric, best: bool) -> Entry:
    values = list(results.values(place, model, metric).values())
    said = results.printed(place, model, metric)
    paper = "" if said is None else f"\npaper {said.value:{metric.form}}"
    if not values:
        return Entry(_missing(results, place, model) + paper, faint=True)
    one, planned = spread(values), results.progress_at(place, model).all
    wide = "" if one.std is None else f" ±{one.std:{metric.form}}"
    repeats = f"({one.n}{f' of {planned}' if one.n < planned else ''})"
    mark = STALE if results.is_stale(place, model, metric) else ""
    return Entry(f"{one.mean:{metric.form}}{wide} {repeats}{mark}{paper}", best)


def _missing_places(results: Results, places: Sequence[Place]) -> tuple[str, ...]:
    """Sentences that name the places without any result."""
    notes = []
    for state, said in ((NOT_RUN, "Not run"), (NO_DATA, "No data here")):
        of_data: dict[str, list[str]] = {}
        for data, setting in places:
            states = {_missing(results, (data, setting), model) for model in results.models} - {NOTHING}
            if state in states and (state == NOT_RUN or states == {NO_DATA}):
                of_data.setdefault(data, []).append(setting)
        whole = [data for data, own in of_data.items() if len(own) == sum(data == name for name, _ in results.places)]
        parts = [data if data in whole else f"{data} ({', '.join(own)})" for data, own in of_data.items()]
        notes += [f"{said}: {', '.join(parts)}."] if parts else []
    return tuple(notes)


def _repeats(n: int) -> str:
    return "1 repeat" if n == 1 else f"{n} repeats"


def _of_cells(n: int) -> str:
    return "1 cell" if n == 1 else f"{n} cells"


def average_sheets(results: Results) -> list[Sheet]:
    """One table for each metric: means and mean ranks over the cells that all models have; the paper's over the same.

    None where no model is ours: there is nobody to rank.
    """
    metrics = results.experiment.metrics if results.experiment.ours else ()
    return [sheet for metric in metrics if (sheet := _average_sheet(results.comparable, metric))]


def rival_sheets(results: Results) -> list[Sheet]:
    """One table for each metric: our model against each other one, and against the paper's numbers for it."""
    return [sheet for metric in results.experiment.metrics if (sheet := _rival_sheet(results.comparable, metric))]


def t_test_sheets(results: Results) -> list[Sheet]:
    """One table for each metric: paired t-tests within each data set, where there are repeats enough."""
    return [sheet for metric in results.experiment.metrics if (sheet := _test_sheet(results.comparable, metric))]


@dataclass(frozen=True)
class VerdictCounts:
    """Wins, ties and losses of our model over places.

    Attributes:
        best, close, behind, alone: close is within one standard error of the best; alone without a rival.
        reached: places in which it is not worse than the paper's number for it.
        printed: places in which there is such a number.
        stale: places left out, because only stale cells are there.
    """

    best: int
    close: int
    behind: int
    alone: int
    reached: int
    printed: int
    stale: int


def verdict_counts(results: Results, metric: Metric) -> VerdictCounts:
    """Counts over all places where our model has the metric."""
    usable, ours = results.comparable, results.experiment.ours
    places = [place for place in usable.places if usable.values(place, ours, metric)]
    words = [verdict(usable, place, metric) for place in places]
    best, close, behind = (sum(said.startswith(start) for said in words) for start in ("best", "within", "behind"))
    paper = against_paper(usable, metric, ours)
    reached, printed = (paper.reached, paper.cells) if paper else (0, 0)
    stale = sum(results.is_stale(place, ours, metric) for place in results.places)
    return VerdictCounts(best, close, behind, len(words) - best - close - behind, reached, printed, stale)


def _average_sheet(results: Results, metric: Metric) -> Sheet | None:
    models = results.ranked_models(metric)
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
    """Groups of places: name, places, and whether a mean over them says something."""
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
    rivals = [model for model in results.ranked_models(metric) if model != ours]
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


def selection_sheet(honest: Results, paper: Results) -> Sheet | None:
    """The best test epoch against the last one, and the paper's protocol against the honest one, for each model."""
    metric = honest.experiment.metrics[0]
    honest, paper = honest.comparable, paper.comparable
    within = {model: _pairs(paper, paper, model, metric.key, LAST + metric.key) for model in paper.models}
    between = {model: _pairs(paper, honest, model, metric.key, metric.key) for model in paper.models}
    if not any(within.values()) and not any(between.values()):
        return None
    models = [model for model in paper.models if within[model] or between[model]]
    lines = [(Entry(model), *_fields(within[model], metric), *_fields(between[model], metric)) for model in models]
    everything = [[pair for own in pairs.values() for pair in own] for pairs in (within, between)]
    lines.append((Entry("all"), *(field for pairs in everything for field in _fields(pairs, metric))))
    heads = (
        "trainings",
        "best test epoch",
        "last epoch",
        "gain",
        "repeats",
        "paper protocol",
        "honest protocol",
        "gain",
    )
    title = f"{metric.label}: gain of choosing the epoch by the test data"
    return Sheet(title, ("model", *heads), tuple(lines), notes=(_SELECTION_NOTE,))


def _pairs(a: Results, b: Results, model: str, key_a: str, key_b: str) -> list[tuple[float, float]]:
    found = []
    for place in a.places:
        here, there = a.keyed_values(place, model, key_a), b.keyed_values(place, model, key_b)
        found += [(here[key], there[key]) for key in here if key in there]
    return found


def _fields(pairs: Sequence[tuple[float, float]], metric: Metric) -> list[Entry]:
    if not pairs:
        return [Entry("not run", faint=True)] * 4
    here, there = np.mean(pairs, axis=0)
    gain = here - there if metric.better == "max" else there - here
    numbers = (f"{here:{metric.form}}", f"{there:{metric.form}}", f"{gain:+{metric.form}}")
    return [Entry(str(len(pairs))), *map(Entry, numbers)]

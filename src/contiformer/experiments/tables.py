"""Our numbers, their spread, the paper's numbers and the verdict, side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from contiformer.experiments import costs
from contiformer.experiments.experiment import Metric
from contiformer.experiments.results import Place, Results, better_or_equal
from contiformer.experiments.summary import paired_p, ranks, spread
from contiformer.reports.sheet import Entry, Sheet

NOT_RUN, NO_DATA, NOTHING = "not run", "no data", "-"
_BETTER = {"max": "higher is better", "min": "lower is better"}
_CSV_NAMES = ("table", "protocol", "budget", "data", "setting", "model", "metric")
_CSV_FIGURES = ("n", "of", "mean", "std", "standard_error", "rank", "p", "paper", "paper_std", "state")


def main_sheets(results: Results) -> list[Sheet]:
    """For each metric: a line for each data set and setting, a column for each model, and the verdict on ours."""
    if results.experiment.name == costs.TABLE:
        return costs.cost_sheets(results)
    return [_main_sheet(results, metric) for metric in results.experiment.metrics]


def about(results: Results, metric: Metric) -> str:
    """The head of every table: what is measured, and how the model was chosen."""
    return f"{metric.label} ({_BETTER[metric.better]}), {results.protocol} protocol"


def verdict(results: Results, place: Place, metric: Metric) -> str:
    """How our model does among all that have repeats in common with it there."""
    ours = results.experiment.ours
    own = results.values(place, ours, metric)
    if not own:
        return NOTHING
    rivals = [
        model
        for model in results.compared(metric)
        if model != ours and set(results.values(place, model, metric)) & set(own)
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
    """How our model does against what the paper prints for it."""
    values = results.values(place, results.experiment.ours, metric)
    said = results.printed(place, results.experiment.ours, metric)
    if not values or said is None:
        return ""
    mean = spread(list(values.values())).mean
    gap = f"{abs(mean - said.value):{metric.form}}"
    if better_or_equal(metric, mean, said.value):
        return "at or above the paper" if metric.better == "max" else "at or below the paper"
    return f"below the paper by {gap}" if metric.better == "max" else f"above the paper by {gap}"


def to_csv(results: Results) -> str:
    """Everything, a line for each place, model and metric."""
    text = io.StringIO()
    writer = csv.DictWriter(text, (*_CSV_NAMES, *_CSV_FIGURES), lineterminator="\n")
    writer.writeheader()
    budget = next((row["budget"] for row in results.rows.values()), "")
    for place in results.places:
        for metric in results.experiment.metrics:
            models = [model for model in results.models if results.values(place, model, metric)]
            shared = results.common(place, models, metric)
            order = ranks({model: float(np.mean(values)) for model, values in shared.items()}, metric) if shared else {}
            for model in results.models:
                if not results.progress_at(place, model).all:
                    continue
                line = {"table": results.experiment.name, "protocol": results.protocol, "budget": budget}
                line |= {"data": place[0], "setting": place[1], "model": model, "metric": metric.key}
                writer.writerow(line | _figures(results, place, model, metric) | {"rank": order.get(model)})
    return text.getvalue()


def _figures(results: Results, place: Place, model: str, metric: Metric) -> dict[str, object]:
    progress, said = results.progress_at(place, model), results.printed(place, model, metric)
    found: dict[str, object] = {"n": 0, "of": progress.all, "state": _missing(results, place, model)}
    if said is not None:
        found |= {"paper": said.value, "paper_std": said.std}
    if values := list(results.values(place, model, metric).values()):
        one = spread(values)
        numbers = {
            "mean": one.mean,
            "std": one.std,
            "standard_error": one.error,
            "p": p_against_ours(results, place, model, metric),
        }
        found |= {name: None if value is None else f"{value:.6g}" for name, value in numbers.items()}
        found |= {"n": one.n, "state": "partly" if one.n < progress.all else "complete"}
    return found


def _missing(results: Results, place: Place, model: str) -> str:
    progress = results.progress_at(place, model)
    if progress.done or not progress.all:
        return NOTHING
    return NOT_RUN if progress.runnable else NO_DATA


def p_against_ours(results: Results, place: Place, model: str, metric: Metric) -> float | None:
    """Of a paired t-test over the repeats that our model and this one have there."""
    ours = results.experiment.ours
    common = results.common(place, [ours, model], metric) if model != ours else {}
    return paired_p(common[ours], common[model]) if common else None


def _main_sheet(results: Results, metric: Metric) -> Sheet:
    begun = [p for p in results.places if any(results.progress_at(p, model).done for model in results.models)]
    shown = [p for p in begun if any(results.values(p, model, metric) for model in results.models)]
    settings, ours = any(setting for _, setting in results.places), results.experiment.ours
    lines = []
    for place in shown:
        means = {
            model: spread(list(v.values())).mean
            for model in results.models
            if (v := results.values(place, model, metric))
        }
        order = ranks(means, metric) if means else {}
        names = [Entry(place[0]), Entry(place[1])] if settings else [Entry(place[0])]
        fields = [_field(results, place, model, metric, order.get(model) == 1) for model in results.models]
        words = "\n".join(filter(None, (verdict(results, place, metric), paper_verdict(results, place, metric))))
        lines.append((*names, *fields, *([Entry(words)] if ours else [])))
    heads = ("data", "setting") if settings else ("data",)
    title = f"{about(results, metric)}: mean ± standard deviation (repeats)"
    notes = _missing_places(results, [place for place in results.places if place not in begun])
    if without := dict.fromkeys(data for data, setting in begun if (data, setting) not in shown):
        notes = (f"Without this figure: {', '.join(without)}.", *notes)
    columns = (*heads, *results.models, *([f"verdict on {ours}"] if ours else []))
    return Sheet(title, columns, tuple(lines), len(heads), int(bool(ours)), notes)


def _field(results: Results, place: Place, model: str, metric: Metric, best: bool) -> Entry:
    values = list(results.values(place, model, metric).values())
    said = results.printed(place, model, metric)
    paper = "" if said is None else f"\npaper {said.value:{metric.form}}"
    if not values:
        return Entry(_missing(results, place, model) + paper, faint=True)
    one, asked = spread(values), results.progress_at(place, model).all
    wide = "" if one.std is None else f" ±{one.std:{metric.form}}"
    return Entry(f"{one.mean:{metric.form}}{wide} ({one.n}{f' of {asked}' if one.n < asked else ''}){paper}", best)


def _missing_places(results: Results, places: Sequence[Place]) -> tuple[str, ...]:
    """Places of which nothing is there at all, in a sentence instead of a line each."""
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

"""Tables of the boards: our models beside published figures and the practitioner's line."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean

from contiformer.plots import Entry, Sheet
from reproduction.comparison import ranks, spread
from reproduction.experiments import Metric
from reproduction.results import Place, Results

PUBLISHED = Path(__file__).with_name("boards.csv")
_NOTHING = Entry("-", faint=True)


@dataclass(frozen=True)
class Figure:
    """A figure of a board: its value, its standard deviation where known, and its source; ours have repeats."""

    value: float
    std: float | None
    source: str
    repeats: int | None = None

    def text(self, metric: Metric) -> str:
        """As in ``87.45 ± 0.75 (5)``."""
        spread_text = "" if self.std is None else f" ± {self.std:{metric.form}}"
        return f"{self.value:{metric.form}}{spread_text}" + ("" if self.repeats is None else f" ({self.repeats})")


@cache
def published(board: str) -> dict[str, dict[tuple[str, str, str], Figure]]:
    """Published figures of a board by method, then by data, setting and metric."""
    found: dict[str, dict[tuple[str, str, str], Figure]] = {}
    for row in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        if row["board"] == board:
            figure = Figure(float(row["value"]), float(row["std"]) if row["std"] else None, row["source"])
            found.setdefault(row["method"], {})[row["data"], row["setting"], row["metric"]] = figure
    return found


def figures(results: Results) -> dict[str, dict[tuple[Place, str], Figure]]:
    """Every figure by method, published ones first, then by place and metric."""
    board = results.experiment.name.removeprefix("board-")
    found: dict[str, dict[tuple[Place, str], Figure]] = {}
    for method, known in published(board).items():
        for place in results.places:
            for metric in results.experiment.metrics:
                settings = (place[1], "") if place[1] else ("",)
                figure = next((known[k] for s in settings if (k := (place[0], s, metric.key)) in known), None)
                if figure is not None:
                    found.setdefault(method, {})[place, metric.key] = figure
    for model in results.models:
        for place in results.places:
            for metric in results.experiment.metrics:
                if values := list(results.values(place, model, metric).values()):
                    one = spread(values)
                    found.setdefault(model, {})[place, metric.key] = Figure(one.mean, one.std, "ours", one.n)
    return found


def by_method(results: Results) -> list[Sheet]:
    """One table: a line for each method, the best by the first metric of the first place on top."""
    metrics, known = results.experiment.metrics, figures(results)
    places = [
        place for place in results.places if any((place, m.key) in own for own in known.values() for m in metrics)
    ]
    if not places:
        return []
    best = {
        (place, metric.key): min(
            (own[place, metric.key].value for own in known.values() if (place, metric.key) in own),
            key=lambda value, metric=metric: value if metric.better == "min" else -value,  # type: ignore[misc]
        )
        for place in places
        for metric in metrics
        if any((place, metric.key) in own for own in known.values())
    }
    first = (places[0], metrics[0].key)
    sign = 1 if metrics[0].better == "min" else -1

    def order(method: str) -> tuple[bool, float]:
        figure = known[method].get(first)
        return figure is None, 0.0 if figure is None else sign * figure.value

    lines = []
    for method in sorted(known, key=order):
        own = known[method]
        fields = [
            Entry(figure.text(metric), strong=figure.value == best[place, metric.key])
            if (figure := own.get((place, metric.key)))
            else _NOTHING
            for place in places
            for metric in metrics
        ]
        source = next(iter(own.values())).source
        lines.append((Entry(method), *fields, _seconds(results, method), Entry(source)))
    heads = [f"{_named(place)}{metric.label}" for place in places for metric in metrics]
    title = f"{results.experiment.title}: mean ± standard deviation (repeats)"
    return [Sheet(title, ("method", *heads, "seconds a cell", "source"), tuple(lines), 1, 1)]


def _named(place: Place) -> str:
    return f"{' '.join(word for word in place if word and word != 'published')}: "


def _seconds(results: Results, method: str) -> Entry:
    """Mean duration of the cells of a model."""
    spent = [row["seconds"] for cell, row in results.rows.items() if cell.model == method]
    return Entry(f"{mean(spent):.0f}") if spent else _NOTHING


def by_place(results: Results) -> list[Sheet]:
    """One table for each metric: a line for each place, a column for each method; means and ranks below."""
    known = figures(results)
    sheets = []
    for metric in results.experiment.metrics:
        methods = [method for method, own in known.items() if any(key == metric.key for _, key in own)]
        places = [place for place in results.places if any((place, metric.key) in known[m] for m in methods)]
        if places and methods:
            sheets.append(_place_sheet(results, metric, methods, places, known))
    return sheets


def _place_sheet(
    results: Results,
    metric: Metric,
    methods: list[str],
    places: list[Place],
    known: dict[str, dict[tuple[Place, str], Figure]],
) -> Sheet:
    lines, orders = [], []
    for place in places:
        here = {m: known[m][place, metric.key] for m in methods if (place, metric.key) in known[m]}
        order = ranks({m: figure.value for m, figure in here.items()}, metric)
        orders.append(order)
        fields = [Entry(here[m].text(metric), strong=order[m] == 1) if m in here else _NOTHING for m in methods]
        lines.append((Entry(" ".join(filter(None, place))), *fields))
    # means and ranks only over places that every method has, so that they compare
    whole = [n for n, order in enumerate(orders) if len(order) == len(methods)]
    if len(whole) > 1:
        values = {m: mean(known[m][places[n], metric.key].value for n in whole) for m in methods}
        best = ranks(values, metric)
        lines.append(
            (
                Entry(f"mean of {len(whole)}"),
                *(Entry(f"{values[m]:{metric.form}}", strong=best[m] == 1) for m in methods),
            )
        )
        places_ = {m: mean(orders[n][m] for n in whole) for m in methods}
        top = min(places_.values())
        if len(methods) > 1:
            lines.append((Entry("mean rank"), *(Entry(f"{places_[m]:.2f}", strong=places_[m] == top) for m in methods)))
    title = f"{results.experiment.title}: {metric.label}, mean ± standard deviation (repeats)"
    board = results.experiment.name.removeprefix("board-")
    sources = sorted({f"{m}: {next(iter(own.values())).source}" for m, own in published(board).items() if m in methods})
    return Sheet(title, ("data", *methods), tuple(lines), 1, 0, tuple(sources[:8]))

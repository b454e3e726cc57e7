"""Event sequences: ten models on six sets, and the paper's test of significance.

Models see times and types and nothing else. Where a set has one published split there are several seeds in place of
folds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from contiformer import EventPredictor
from contiformer.data import EventSet, without_features
from contiformer.data.catalog import EVENT_FOLDS, load_events
from contiformer.data.synthetic import EventProcess
from contiformer.plots import Entry, Sheet
from reproduction.experiments import (
    STATIC_TWIN,
    Budget,
    Cell,
    Experiment,
    Metric,
    Outcome,
    Protocol,
    best_epoch,
    configuration,
    model_options,
    not_here,
)
from reproduction.results import Results

#: Cheap sets first.
DATA = ("MIMIC-II", "Neonate", "Synthetic", "Taxi", "StackOverflow", "BookOrder")
#: Backbones of EventPredictor; behind a colon another intensity than the backbone's own, or "static". "thp" is the
#: encoder of the Transformer Hawkes Process, which sees no waits; "transformer" is given all that ContiFormer is.
MODELS = (
    "contiformer",
    "hp",
    "rmtpp",
    "nhp",
    "sahp",
    "thp",
    "nstka",
    "gru_dt",
    "ode_rnn",
    "mtan",
    "contiformer:thp",
    STATIC_TWIN,
    f"{STATIC_TWIN}:thp",
    "transformer:thp",
    "transformer:hazard",
    "thp:hazard",
    "gru_dt:hazard",
    "mtan:hazard",
)
#: Encoders with THP's intensity and with ours: the names of both models.
CROSSED = {
    "contiformer": ("contiformer:thp", "contiformer"),
    STATIC_TWIN: (f"{STATIC_TWIN}:thp", STATIC_TWIN),
    "transformer": ("transformer:thp", "transformer:hazard"),
    "thp": ("thp", "thp:hazard"),
    "gru_dt": ("gru_dt", "gru_dt:hazard"),
    "mtan": ("mtan", "mtan:hazard"),
}
#: ``events-short``: so many events of every sequence of BookOrder, which has up to 500.
SHORT_DATA, SHORT_EVENTS = "BookOrder", 30
SEEDS_OF_ONE_FOLD = (0, 1, 2)
#: Of the protocol of all experiments on events, which share trainings.
VERSION = 1
#: The paper's test of significance: these models, ten seeds.
SIGNIFICANCE_DATA = ("Synthetic", "BookOrder")
SIGNIFICANCE_MODELS = ("contiformer", "gru_dt", "nstka", "ode_rnn", "rmtpp", "sahp", "thp")
QUICK: dict[str, Any] = {"min_steps": 150, "epochs": 4}
METRICS = (
    Metric("log_likelihood", "log-likelihood", "max"),
    Metric("accuracy", "accuracy", "max"),
    Metric("rmse", "RMSE", "min", ".4g"),
)
AUTHORS_SCORE = Metric("authors_log_likelihood", "log-likelihood by the authors' score", "max", paper="log_likelihood")


def repeats(data: str) -> list[tuple[int, int]]:
    """Folds and seeds of a set: all its folds once, or one fold with several seeds."""
    count = EVENT_FOLDS.get(data, 1)
    if count == 1:
        return [(1, seed) for seed in SEEDS_OF_ONE_FOLD]
    return [(fold, 0) for fold in range(1, count + 1)]


def grid(protocol: Protocol) -> list[Cell]:
    """Fold by fold, so that models can be compared early."""
    of_each = {data: repeats(data) for data in DATA}
    return [
        Cell("events", data, f"fold{of_each[data][number][0]}", model, of_each[data][number][1], protocol)
        for number in range(max(map(len, of_each.values())))
        for data in DATA
        if number < len(of_each[data])
        for model in MODELS
    ]


def significance_grid(protocol: Protocol) -> list[Cell]:
    """Ten seeds on the first fold."""
    return [
        Cell("events-significance", data, "fold1", model, seed, protocol)
        for seed in range(10)
        for data in SIGNIFICANCE_DATA
        for model in SIGNIFICANCE_MODELS
    ]


def short_grid(protocol: Protocol) -> list[Cell]:
    """The crossed models, fold by fold."""
    return [
        Cell("events-short", SHORT_DATA, f"fold{fold}", model, seed, protocol)
        for fold, seed in repeats(SHORT_DATA)
        for models in CROSSED.values()
        for model in models
    ]


def _ablation(cell: Cell) -> list[Cell]:
    """The static twin with THP's intensity is a variant of the ablation of attention."""
    same = cell.model == f"{STATIC_TWIN}:thp"
    return [replace(cell, table="attention", model="static scores, static values")] if same else []


def _twins(cell: Cell) -> list[Cell]:
    """Cells of the table with the same fold and seed."""
    return [replace(cell, table="events")]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``EventPredictor(backbone=...)`` with its defaults."""
    options, intensity = model_options(cell.model)
    first = SHORT_EVENTS if cell.table == "events-short" else None
    return train(cell, {**options, "intensity": intensity[0] if intensity else "auto"}, budget, verbose, first=first)


def train(cell: Cell, options: dict[str, Any], budget: Budget, verbose: int, *, first: int | None = None) -> Outcome:
    """Train on the train part of a fold, choose by its dev part, evaluate once on its test part.

    ``first``: only so many events of every sequence, in all three parts.
    """
    learning, dev, test, truth = parts(cell.data, int(cell.setting.removeprefix("fold")))
    if first is not None:
        learning, dev, test = (first_events(part, first) for part in (learning, dev, test))
    short = QUICK if budget == "quick" else {}
    if cell.protocol == "honest":
        model = EventPredictor.from_options(**options, **short, seed=cell.seed, verbose=verbose)
        metrics = model.fit(learning, validation_data=dev).require_complete().evaluate(test)
    else:
        model = EventPredictor.from_options(**{"keep": "last", **options}, **short, seed=cell.seed, verbose=verbose)
        last = model.fit(learning, validation_data=test).require_complete().evaluate(test)
        best = best_epoch(model.history_, "log_likelihood", "max") if model.history_ else last
        metrics = {name: best[name] for name in last if name in best}
        metrics["last_log_likelihood"] = last["log_likelihood"]
    metrics["authors_log_likelihood"] = log_likelihood(model, test, score="authors")
    details = {
        "validation": model.metrics_["validation"],
        "epochs": model.metrics_["epochs"],
        "weights": sum(weight.numel() for weight in model.tasks_[0].parameters()),
        "sequences": {"train": len(learning), "dev": len(dev), "test": len(test)},
        "notes": dict(learning.notes),
    }
    if first is not None:
        details["first_events"] = first
    return Outcome(metrics | truth, configuration(model), details)


def log_likelihood(model: EventPredictor, data: EventSet, *, score: Literal["events", "authors"] = "events") -> float:
    """Mean log-likelihood, of sequences with at least two events.

    Args:
        model: a fitted one.
        data: sequences, of N events each, of which the first is given and N - 1 are scored.
        score: "events": the sum over all sequences by the number of scored events. "authors": as the authors' released
            code prints it, each sequence by N, and the mean over sequences.
    """
    scored = data.lengths > 1
    sums = np.asarray(model.log_likelihood(data), dtype=np.float64)[scored]
    lengths = data.lengths[scored]
    return float((sums / lengths).mean()) if score == "authors" else float(sums.sum() / (lengths - 1).sum())


@lru_cache(maxsize=1)
def parts(name: str, fold: int) -> tuple[EventSet, EventSet, EventSet, dict[str, float]]:
    """Train, dev and test part as models see them, and the true log-likelihood where it is known; cached."""
    learning, dev, test = (load_events(name, fold=fold, split=part) for part in ("train", "dev", "test"))
    truth = {"true_log_likelihood": true_log_likelihood(test)} if name == "Synthetic" else {}
    return learning.map(without_features), dev.map(without_features), test.map(without_features), truth


def first_events(data: EventSet, count: int) -> EventSet:
    """The beginning of every sequence."""
    return data.map(lambda one: one.events(slice(count)))


def true_log_likelihood(data: EventSet) -> float:
    """Log-likelihood of the paper's own process per scored event, which no model can beat but by chance."""
    process = EventProcess()
    return sum(process.log_likelihood(one) for one in data) / int(data.lengths.sum() - len(data))


def crossed_sheets(results: Results) -> list[Sheet]:
    """Encoders against intensities, over the repeats that all models of a data set's table have."""
    results = results.comparable
    metric, sheets = results.experiment.metrics[0], []
    for place in results.places:
        there: dict[str, tuple[str, str]] = {}
        found: dict[str, list[float]] = {}
        for encoder, pair in CROSSED.items():
            common = results.common(place, [*found, *pair], metric)
            # one that has hardly a repeat in common with those before it would empty the table
            if common and (not found or len(common[pair[0]]) >= min(2, len(next(iter(found.values()))))):
                there[encoder], found = pair, common
        if len(there) < 2:
            continue
        n = len(next(iter(found.values())))
        means = {encoder: [float(np.mean(found[model])) for model in pair] for encoder, pair in there.items()}
        rows = [*means.items(), ("mean", list(np.mean(list(means.values()), axis=0)))]
        best = np.max(list(means.values()), axis=0)
        lines = tuple(
            (
                Entry(encoder),
                *(Entry(f"{x:{metric.form}}", strong=bool(x == top)) for x, top in zip(both, best, strict=True)),
                Entry(f"{both[1] - both[0]:+{metric.form}}"),
            )
            for encoder, both in rows
        )
        spans = [max(column) - min(column) for column in zip(*means.values(), strict=True)]
        note = (
            f"Means over {n} {'repeat' if n == 1 else 'repeats'} that all have. From the worst encoder to the best: "
            f"{spans[0]:{metric.form}} with THP's intensity, {spans[1]:{metric.form}} with hazard."
        )
        heads = ("encoder", "THP's intensity", "hazard", "gain of hazard")
        sheets.append(Sheet(f"{place[0]}: {metric.label} by encoder and intensity", heads, lines, notes=(note,)))
    return sheets


EXPERIMENT = Experiment(
    name="events",
    title="Event sequences: log-likelihood per event, accuracy of the type, error of the time",
    metrics=(*METRICS, AUTHORS_SCORE),
    grid=grid,
    run=run,
    version=VERSION,
    absent=not_here,
    twins=_ablation,
    repeats=True,
    note=(
        "Honest likelihoods: an event is scored by what was known before it. Numbers of the paper on Synthetic are of "
        "other data (its transition matrix is not printed); elsewhere only the authors' score can be compared with "
        "them, see docs/events.md."
    ),
    protocols=("honest", "paper"),
    further_sheets=crossed_sheets,
)
SHORT = replace(
    EXPERIMENT,
    name="events-short",
    title=f"Event sequences: encoders and intensities crossed, first {SHORT_EVENTS} events of each sequence",
    metrics=METRICS,
    grid=short_grid,
    twins=lambda cell: (),
    note=f"Not in the paper. Of every sequence in train, dev and test part the first {SHORT_EVENTS} events.",
    protocols=("honest",),
)
SIGNIFICANCE = replace(
    EXPERIMENT,
    name="events-significance",
    title="Event sequences: ten seeds, paired t-test against ContiFormer",
    metrics=METRICS,
    grid=significance_grid,
    twins=_twins,
    protocols=("honest",),
    further_sheets=lambda results: [],
)

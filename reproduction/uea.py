"""Classification of 20 sets of the UEA archive with points dropped, by nine models; and MiniRocket beside ours."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from contiformer import Classifier
from contiformer.data.catalog import drop_points, load_uea
from contiformer.plots import Entry, Sheet
from reproduction.comparison import spread
from reproduction.experiments import (
    CONTROLS_NOTE,
    PAPER_RECIPE,
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
from reproduction.results import Place, Results
from reproduction.tables import NOTHING, about

#: Small sets first.
DATA = (
    "RacketSports",
    "Libras",
    "JapaneseVowels",
    "BasicMotions",
    "UWaveGestureLibrary",
    "Handwriting",
    "LSST",
    "PenDigits",
    "ArticularyWordRecognition",
    "HandMovementDirection",
    "Heartbeat",
    "CharacterTrajectories",
    "SpokenArabicDigits",
    "DuckDuckGeese",
    "Epilepsy",
    "ERing",
    "FingerMovements",
    "NATOPS",
    "PEMS-SF",
    "SelfRegulationSCP1",
)
MODELS = (
    *("contiformer", "tst", "mtan", "s5", "gru_d", "gru_dt", "ode_rnn", "cadn", "neural_cde"),
    *(STATIC_TWIN, "transformer:control"),
)
DROPS = (30, 50, 70)
SEEDS = (0, 1, 2)
QUICK: dict[str, Any] = {"min_steps": 120, "epochs": 8}
#: Training as the paper describes it; clipping is of the authors' code, and no width or share of dropout is stated.
PAPER_TRAINING: dict[str, Any] = {
    **{"learning_rate": 1e-2, "schedule": "constant", "warmup": 0.0, "field_rate": 1.0, "weight_decay": 0.0},
    **{"batch_size": 64, "max_epochs": 1000, "patience": 0.1, "keep": "best", "averaging": 0.0, "gradient_clip": 1.0},
    **{"keep_points": 1.0, "most_points": None, "noise": 0.0, "warp": 0.0},
}
QUICK_PAPER_TRAINING: dict[str, Any] = {"max_epochs": 8, "patience": 1.0}
#: 1: the number of dropped points rounded to the nearest, before commit 6638e85; 2: rounded down.
VERSION = 2
MINIROCKET = Path(__file__).with_name("minirocket.csv")
_MINIROCKET_NOTE = (
    "MiniRocket: aeon's classifier with its defaults on the same sets, points dropped at random and interpolated back "
    "to the full grid, 3 seeds; kept in reproduction/minirocket.csv."
)


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed, so that early results span everything."""
    return [
        Cell("uea", data, f"drop{drop}", model, seed, protocol)
        for seed in SEEDS
        for drop in DROPS
        for data in DATA
        for model in MODELS
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Classifier(backbone=...)`` with its defaults, the same for all models."""
    return train(cell, model_options(cell.model)[0], budget, verbose)


def train(cell: Cell, options: dict[str, Any], budget: Budget, verbose: int) -> Outcome:
    """Train a Classifier with these options on the training part, evaluate it on the test part."""
    drop = int(cell.setting.removeprefix("drop")) / 100
    train, test = (drop_points(load_uea(cell.data, part), drop, cell.seed) for part in ("train", "test"))
    options = {**options, "seed": cell.seed, **(QUICK if budget == "quick" else {})}
    if cell.protocol == "honest":
        model = Classifier.from_options(**options, verbose=verbose).fit(train).require_complete()
        metrics = model.evaluate(test)
    else:
        model = (
            Classifier.from_options(**options, keep="last", verbose=verbose)
            .fit(train, validation_data=test)
            .require_complete()
        )
        last = model.evaluate(test)
        best = best_epoch(model.history_, "accuracy", "max")
        metrics = {"accuracy": best["accuracy"], "last_accuracy": last["accuracy"]}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"]})


def paper_recipe_grid(protocol: Protocol) -> list[Cell]:
    """The paper's models."""
    cells = [replace(cell, table=f"uea{PAPER_RECIPE}") for cell in grid(protocol)]
    return [cell for cell in cells if cell.model != "transformer:control"]


def run_paper_recipe(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Train on the whole training part and take the best test epoch, as the authors do."""
    drop = int(cell.setting.removeprefix("drop")) / 100
    learning, test = (drop_points(load_uea(cell.data, part), drop, cell.seed) for part in ("train", "test"))
    short = QUICK_PAPER_TRAINING if budget == "quick" else {}
    options = {**PAPER_TRAINING, **model_options(cell.model)[0], **short}
    model = Classifier.from_options(**options, seed=cell.seed, verbose=verbose)
    model.fit(learning, validation_data=test).require_complete()
    best = best_epoch(model.history_, "accuracy", "max")
    return Outcome({"accuracy": best["accuracy"]}, configuration(model), {"epochs": len(model.history_)})


@cache
def minirocket_accuracies() -> dict[Place, float]:
    """Mean accuracy of three seeds, where it was measured."""
    lines = MINIROCKET.read_text(encoding="utf-8").splitlines()
    return {(row["data"], row["setting"]): float(row["accuracy"]) for row in csv.DictReader(lines)}


def minirocket_sheets(results: Results) -> list[Sheet]:
    """Our model, the paper's number for it, and MiniRocket, over the cells that ours and MiniRocket have."""
    results = results.comparable
    metric, ours = results.experiment.metrics[0], results.experiment.ours
    means = {
        place: spread(list(values.values()))
        for place in results.places
        if place in minirocket_accuracies() and (values := results.values(place, ours, metric))
    }
    if not means:
        return []
    printed = {place: results.printed(place, ours, metric) for place in means}
    lines = []
    for place, one in means.items():
        said, other = printed[place], minirocket_accuracies()[place]
        mine = Entry(f"{one.mean:{metric.form}} ({one.n})", strong=one.mean >= other)
        paper = Entry(NOTHING, faint=True) if said is None else Entry(f"{said.value:{metric.form}}")
        theirs = Entry(f"{other:{metric.form}}", strong=other >= one.mean)
        lines.append(
            (Entry(place[0]), Entry(place[1]), mine, theirs, Entry(f"{one.mean - other:+{metric.form}}"), paper)
        )
    here = np.mean([one.mean for one in means.values()])
    there = np.mean([minirocket_accuracies()[place] for place in means])
    numbers = [said.value for said in printed.values() if said is not None]
    last = Entry(f"{np.mean(numbers):{metric.form}}") if len(numbers) == len(means) else Entry(NOTHING, faint=True)
    total = (Entry(f"{here:{metric.form}}", bool(here >= there)), Entry(f"{there:{metric.form}}", bool(there >= here)))
    lines.append((Entry("mean"), Entry(f"{len(means)} cells"), *total, Entry(f"{here - there:+{metric.form}}"), last))
    heads = ("data", "setting", f"{ours} (repeats)", "MiniRocket (3)", "difference", f"{ours} in the paper")
    return [Sheet(f"{about(results, metric)}: beside MiniRocket", heads, tuple(lines), 2, notes=(_MINIROCKET_NOTE,))]


EXPERIMENT = Experiment(
    name="uea",
    title="Classification of irregular series (UEA archive, 30, 50 and 70 % of the points dropped)",
    metrics=(Metric("accuracy", "accuracy", "max"),),
    grid=grid,
    run=run,
    version=VERSION,
    absent=not_here,
    note=f"All models are trained by one recipe, Classifier(backbone=...) with its defaults. {CONTROLS_NOTE}",
    protocols=("honest", "paper"),
    further_sheets=minirocket_sheets,
)
PAPER_RECIPE_EXPERIMENT = replace(
    EXPERIMENT,
    name=f"uea{PAPER_RECIPE}",
    title="Classification of irregular series (UEA archive), trained by the paper's recipe",
    grid=paper_recipe_grid,
    run=run_paper_recipe,
    note=(
        "Adam at a fixed rate of 1e-2, batches of 64, up to 1000 epochs, the best test epoch. Deviation: training ends "
        "after 100 epochs without better test accuracy, the paper's without better training accuracy."
    ),
    protocols=("paper",),
    paper="uea",
    further_sheets=lambda results: [],
)

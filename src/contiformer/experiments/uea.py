"""Classification of 20 sets of the UEA archive with points dropped: nine models."""

from __future__ import annotations

from typing import Any

from contiformer.data.catalog.drop import drop_points
from contiformer.data.catalog.uea import load_uea
from contiformer.estimators import Classifier
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Outcome, best_epoch
from contiformer.experiments.presence import not_here
from contiformer.experiments.recipe import configuration

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
MODELS = ("contiformer", "tst", "mtan", "s5", "gru_d", "gru_dt", "ode_rnn", "cadn", "neural_cde")
DROPS = (30, 50, 70)
SEEDS = (0, 1, 2)
QUICK: dict[str, Any] = {"min_steps": 120, "max_epochs": 8}


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
    drop = int(cell.setting.removeprefix("drop")) / 100
    train, test = (drop_points(load_uea(cell.data, part), drop, cell.seed) for part in ("train", "test"))
    options: dict[str, Any] = {"backbone": cell.model, "seed": cell.seed, **(QUICK if budget == "quick" else {})}
    if cell.protocol == "honest":
        model = Classifier(**options, verbose=verbose).fit(train).whole()
        metrics = model.evaluate(test)
    else:
        model = Classifier(**options, keep="last", verbose=verbose).fit(train, validation_data=test).whole()
        last = model.evaluate(test)
        best = best_epoch(model.history_, "accuracy", "max")
        metrics = {"accuracy": best["accuracy"], "last_accuracy": last["accuracy"]}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"]})


EXPERIMENT = Experiment(
    name="uea",
    title="Classification of irregular series (UEA archive, 30, 50 and 70 % of the points dropped)",
    metrics=(Metric("accuracy", "accuracy", "max"),),
    grid=grid,
    run=run,
    absent=not_here,
    note="All models are trained by one recipe, Classifier(backbone=...) with its defaults.",
    protocols=("honest", "paper"),
)

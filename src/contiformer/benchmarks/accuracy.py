"""How good the estimators are without tuning: one command, resumable, every figure with its seed and protocol.

A case is trained on its training data, with a validation part taken from them; the test data are read once, at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contiformer.benchmarks.machine import machine_facts
from contiformer.data.catalog.clinical import load_clinical
from contiformer.data.catalog.drop import drop_points
from contiformer.data.catalog.forecasting import borders, load_forecasting, windows
from contiformer.data.catalog.uea import load_uea
from contiformer.data.readers.text import read_text, write_text
from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.data.synthetic import pendulum_splits, spiral_set
from contiformer.estimators import Classifier, Forecaster, Interpolator, Regressor

Metrics = dict[str, float]
SPIRALS_TRAIN, SPIRALS_VALIDATION = 170, 30


@dataclass(frozen=True)
class Case:
    """One data set under one protocol.

    Attributes:
        name: as the command line knows it.
        protocol: in words.
        metric: the one that counts, "max" or "min" of it being better.
        bar: what has to be reached, on average over the seeds.
        run: seed and verbosity -> metrics on the test data.
    """

    name: str
    protocol: str
    metric: str
    better: str
    bar: float | None
    run: Callable[[int, int], Metrics]


def classification(name: str, drop: float) -> Callable[[int, int], Metrics]:
    """Classifier() on a set of the UEA archive."""

    def run(seed: int, verbose: int) -> Metrics:
        train, test = (drop_points(load_uea(name, part), drop, seed) for part in ("train", "test"))
        classifier = Classifier(seed=seed, verbose=verbose).fit(train).whole()
        return classifier.evaluate(test) | {"seconds": classifier.metrics_["seconds"]}

    return run


def forecasting(name: str, history: int, horizon: int) -> Callable[[int, int], Metrics]:
    """Forecaster() on the paper's windows; values standardised by the training part."""

    def run(seed: int, verbose: int) -> Metrics:
        data = load_forecasting(name)
        start, end = borders(name, rows=len(data[0]))["train"]
        scaling = Scaling.fit(SeriesSet([data[0].points(slice(start, end))], schema=data.schema))
        scaled = data.map(lambda one: replace(one, values=scaling.apply_to(one).values))
        train, val, test = (windows(scaled, part, history, horizon) for part in ("train", "val", "test"))
        forecaster = Forecaster(horizon=horizon, history=history, seed=seed, verbose=verbose)
        forecaster.fit(train, validation_data=val).whole()
        miss = np.concatenate(
            [
                (said - one.target_values).ravel()
                for said, one in zip(_by_blocks(forecaster.predict_windows, test), test, strict=True)
            ]
        )
        return {
            "mse": float((miss**2).mean()),
            "mae": float(np.abs(miss).mean()),
            "seconds": forecaster.metrics_["seconds"],
        }

    return run


def _by_blocks(predict: Callable[[SeriesSet], list[Any]], data: SeriesSet, size: int = 2048) -> Iterator[Any]:
    for start in range(0, len(data), size):
        yield from predict(data[start : start + size])


def pendulum(seed: int, verbose: int) -> Metrics:
    """Regressor() on pictures of a pendulum."""
    train, validation, test = pendulum_splits(seed=seed)
    regressor = Regressor(frames=(24, 24), seed=seed, verbose=verbose, **PENDULUM_OPTIONS)
    regressor.fit(train, validation_data=validation).whole()
    said = regressor.predict(test, at=[one.target_times for one in test])
    miss = np.concatenate([(a.values - b.target_values).ravel() for a, b in zip(said, test, strict=True)])
    return {"mse": float((miss**2).mean()), "seconds": regressor.metrics_["seconds"]}


#: By validation: a second layer fits better than one, at less than half as much time again. 12 epochs are 3000 steps.
PENDULUM_OPTIONS: dict[str, Any] = {"n_layers": 2, "dropout": 0.1, "max_epochs": 16}


def spirals(seed: int, verbose: int) -> Metrics:
    """Interpolator on spirals, by the authors' protocol: 200 curves to learn from, 100 to be judged on."""
    data = spiral_set(300, preset="authors' code", seed=seed)
    train, validation = data[:SPIRALS_TRAIN], data[SPIRALS_TRAIN : SPIRALS_TRAIN + SPIRALS_VALIDATION]
    test = data[SPIRALS_TRAIN + SPIRALS_VALIDATION :]
    model = Interpolator(seed=seed, verbose=verbose, **SPIRAL_OPTIONS).fit(train, validation_data=validation).whole()
    said = model.predict(test, at=[one.target_times for one in test])
    miss = np.stack([a.values - b.target_values for a, b in zip(said, test, strict=True)])
    first, second = np.split(miss, 2, axis=1)
    # as in the authors' script: distances in the plane, in the unit box of all curves
    return {
        "interpolation_rmse": float(np.sqrt((first**2).sum(2).mean())),
        "extrapolation_rmse": float(np.sqrt((second**2).sum(2).mean())),
        "interpolation_mae": float(np.abs(first).sum(2).mean()),
        "extrapolation_mae": float(np.abs(second).sum(2).mean()),
        "seconds": model.metrics_["seconds"],
    }


SPIRAL_OPTIONS: dict[str, Any] = {
    "law": "point",
    "d_model": 32,
    "dropout": 0.0,
    "window": 0,
    "weight_decay": 0.0,
    "learning_rate": 0.02,
    "batch_size": 16,
    "keep": "best",
    "min_steps": 1200,
    "max_epochs": 1,
    "patience": 1.0,
}


#: Chosen by validation within set A: 3200 records with 37 channels and gaps are overfitted within a few epochs.
MORTALITY_OPTIONS: dict[str, Any] = {
    "d_model": 32,
    "window": 2,
    "weight_decay": 3.0,
    "label_smoothing": 0.0,
    "learning_rate": 2e-3,
    "batch_size": 64,
    "max_epochs": 6,
    "min_steps": 0,
}


def mortality(seed: int, verbose: int) -> Metrics:
    """Classifier on PhysioNet 2012: trained on set A, judged on set B."""
    classifier = Classifier(seed=seed, verbose=verbose, **MORTALITY_OPTIONS)
    classifier.fit(load_clinical("PhysioNet2012-A")).whole()
    return classifier.evaluate(load_clinical("PhysioNet2012-B")) | {"seconds": classifier.metrics_["seconds"]}


def clinical_interpolation(seed: int, verbose: int) -> Metrics:
    """Interpolator() on hidden values of PhysioNet 2012, set A, beside carrying forward and straight lines."""
    from contiformer.benchmarks.simple_interpolation import clipped, compared  # noqa: PLC0415

    data = load_clinical("PhysioNet2012-A")
    data = data.select(np.flatnonzero(data.lengths > 1))
    train, test = data.split(0.8, 0.2, seed=seed)
    train, test = clipped(train, test)
    model = Interpolator(seed=seed, verbose=verbose).fit(train).whole()
    return compared(model, train, test, seed) | {"seconds": model.metrics_["seconds"]}


_UEA = {
    "RacketSports-0": ("RacketSports", 0.0, 0.84),
    "RacketSports-30": ("RacketSports", 0.3, 0.81),
    "BasicMotions-30": ("BasicMotions", 0.3, 0.97),
    "JapaneseVowels-30": ("JapaneseVowels", 0.3, 0.97),
    "Libras-30": ("Libras", 0.3, 0.84),
    "PenDigits-30": ("PenDigits", 0.3, 0.94),
    "UWaveGestureLibrary-30": ("UWaveGestureLibrary", 0.3, 0.85),
}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(
            Case(
                name,
                f"official split, {drop:.0%} of the points dropped, validation from train, Classifier()",
                "accuracy",
                "max",
                bar,
                classification(data, drop),
            )
            for name, (data, drop, bar) in _UEA.items()
        ),
        Case("ILI-24", "36 -> 24, val to choose by, Forecaster()", "mse", "min", 2.39, forecasting("ILI", 36, 24)),
        Case("ETTh2-24", "96 -> 24, val to choose by, Forecaster()", "mse", "min", 0.20, forecasting("ETTh2", 96, 24)),
        Case(
            "pendulum",
            "generated, given validation set, Regressor(frames=...), two layers, 12 epochs",
            "mse",
            "min",
            4.2e-3,
            pendulum,
        ),
        Case(
            "spirals",
            "authors' protocol, alpha 0.02, 170 + 30 to learn from, 100 to be judged on",
            "interpolation_rmse",
            "min",
            0.65e-2,
            spirals,
        ),
        Case(
            "mortality",
            "PhysioNet 2012, A -> B, Classifier with options chosen within A",
            "auroc",
            "max",
            0.85,
            mortality,
        ),
        Case(
            "clinical-interpolation",
            "PhysioNet 2012 A, clipped at 0.1 and 99.9 %, 80 % of the stays to learn from; of the others 20 % hidden",
            "nll",
            "min",
            None,
            clinical_interpolation,
        ),
    )
}


def measure(
    names: list[str], seeds: list[int], path: Path, verbose: int, notify: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run what is not in the file yet, write after each run, and return all rows of the cases asked for."""
    # a folder that cannot be made is found out before the work, not after it
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = json.loads(read_text(path)) if path.is_file() else []
    done = {(row["case"], row["seed"]) for row in rows}
    for name in names:
        for seed in seeds:
            if (name, seed) in done:
                continue
            began = time.perf_counter()
            torch.manual_seed(seed)
            metrics = CASES[name].run(seed, verbose)
            rows.append(
                {
                    "case": name,
                    "seed": seed,
                    "protocol": CASES[name].protocol,
                    "metrics": metrics,
                    "seconds_in_all": round(time.perf_counter() - began, 1),
                    "machine": machine_facts(),
                }
            )
            write_text(path, json.dumps(rows, indent=1))
            notify(f"{name} seed {seed}: {CASES[name].metric} {metrics[CASES[name].metric]:.4g}")
    return [row for row in rows if row["case"] in names and row["seed"] in seeds]


def summary(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each case: the metric's mean over the seeds, each of them, the bar, and the seconds of training."""
    lines: list[tuple[str, ...]] = []
    for name in dict.fromkeys(row["case"] for row in rows):
        case = CASES[name]
        own = [row["metrics"] for row in rows if row["case"] == name]
        values = [metrics[case.metric] for metrics in own]
        mean = float(np.mean(values))
        met = case.bar is None or (mean >= case.bar if case.better == "max" else mean <= case.bar)
        sign = {"max": "≥", "min": "≤"}[case.better]
        bar = "" if case.bar is None else f"{sign} {case.bar:g} {'✓' if met else '✗'}"
        seconds = f"{np.mean([metrics['seconds'] for metrics in own]):.0f}"
        lines.append((name, case.metric, f"{mean:.4g}", " ".join(f"{v:.4g}" for v in values), bar, seconds))
    return lines

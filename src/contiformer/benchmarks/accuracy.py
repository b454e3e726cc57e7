"""How good the estimators are without tuning: one command, resumable, every figure with its seed and protocol.

A case is trained on its training data, with a validation part taken from them; the test data are read once, at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contiformer.benchmarks.machine import machine_facts
from contiformer.data.catalog.clinical import load_clinical
from contiformer.data.readers.text import read_text, write_text
from contiformer.estimators import Classifier, Interpolator
from contiformer.experiments import forecasting, pendulum, spirals, uea
from contiformer.experiments.cell import Cell
from contiformer.experiments.experiment import Experiment

Metrics = dict[str, float]


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


def of_experiment(experiment: Experiment, data: str, setting: str) -> Callable[[int, int], Metrics]:
    """ContiFormer in a cell of one of the paper's tables."""

    def run(seed: int, verbose: int) -> Metrics:
        began = time.perf_counter()
        cell = Cell(experiment.name, data, setting, "contiformer", seed)
        metrics = experiment.run(cell, "full", verbose).metrics
        return metrics | {"seconds": time.perf_counter() - began}

    return run


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
                of_experiment(uea.EXPERIMENT, data, f"drop{100 * drop:.0f}"),
            )
            for name, (data, drop, bar) in _UEA.items()
        ),
        Case(
            "ILI-24",
            "36 -> 24, val to choose by, Forecaster()",
            "mse",
            "min",
            2.39,
            of_experiment(forecasting.EXPERIMENT, "ILI", "horizon24"),
        ),
        Case(
            "ETTh2-24",
            "96 -> 24, val to choose by, Forecaster()",
            "mse",
            "min",
            0.20,
            of_experiment(forecasting.EXPERIMENT, "ETTh2", "horizon24"),
        ),
        Case(
            "pendulum",
            "generated, given validation set, Regressor(frames=...), two layers, 16 epochs",
            "mse",
            "min",
            4.2e-3,
            of_experiment(pendulum.EXPERIMENT, "pendulum", "default"),
        ),
        Case(
            "spirals",
            "authors' protocol, alpha 0.02, 170 + 30 to learn from, 100 to be judged on",
            "interpolation_rmse",
            "min",
            0.65e-2,
            of_experiment(spirals.EXPERIMENT, "spirals", "alpha0.02"),
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

"""Test accuracy of the estimators without tuning, each figure with its seed, protocol, machine and commit.

A case is trained on its training data, with a validation part taken from them; the test data are read once, at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.machine import machine_facts
from benchmarks.recipes import (
    fit_spirals,
    pendulum_error,
    pendulum_model,
    spiral_errors,
    spiral_splits,
    standardised_windows,
)
from contiformer import Classifier, Forecaster, Interpolator, TrainingOptions
from contiformer.data import Series, SeriesSet, read_text, write_text
from contiformer.data.catalog import PAPER_LENGTHS, drop_points, load_clinical, load_uea
from contiformer.data.synthetic import pendulum_splits

Metrics = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One data set under one protocol.

    Attributes:
        name: as the command line knows it.
        protocol: in words.
        metric: the one that is shown.
        run: seed and verbosity -> metrics on the test data.
    """

    name: str
    protocol: str
    metric: str
    run: Callable[[int, int], Metrics]


def classification(seed: int, verbose: int, *, data: str, drop: float, backbone: str) -> Metrics:
    """Classifier(backbone=...) on a set of the UEA archive with points dropped."""
    train, test = (drop_points(load_uea(data, part), drop, seed) for part in ("train", "test"))
    model = Classifier(backbone=backbone, training=TrainingOptions(seed=seed, verbose=verbose))
    return model.fit(train).require_complete().evaluate(test)


def forecasting(seed: int, verbose: int, *, data: str, horizon: int) -> Metrics:
    """Forecaster() on all test windows of a regular series."""
    train, validation, test = standardised_windows(data, horizon)
    training = TrainingOptions(seed=seed, verbose=verbose)
    model = Forecaster(horizon=horizon, history=PAPER_LENGTHS[data][0], scaling="none", training=training)
    errors = model.fit(train, validation_data=validation).require_complete().evaluate(test)
    return {key: errors[key] for key in ("mse", "mae")}


def pendulum(seed: int, verbose: int) -> Metrics:
    """Regressor on pictures of a pendulum."""
    train, validation, test = pendulum_splits(seed=seed)
    model = pendulum_model("contiformer", seed, verbose).fit(train, validation_data=validation)
    return {"mse": pendulum_error(model.require_complete(), test)}


def spirals(seed: int, verbose: int, *, alpha: float) -> Metrics:
    """Interpolator on spirals, inside and beyond the observations."""
    return spiral_errors(fit_spirals("contiformer", alpha, seed, verbose), spiral_splits(alpha, seed)[2])


#: Share of the observed values that is hidden, each with the same chance.
HIDDEN = 0.2
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


def mortality(seed: int, verbose: int, **options: Any) -> Metrics:
    """Classifier on PhysioNet 2012: trained on set A, judged on set B."""
    classifier = Classifier.from_options(seed=seed, verbose=verbose, **options)
    classifier.fit(load_clinical("PhysioNet2012-A")).require_complete()
    return classifier.evaluate(load_clinical("PhysioNet2012-B")) | {"seconds": classifier.metrics_["seconds"]}


def clinical_interpolation(seed: int, verbose: int) -> Metrics:
    """Interpolator() on hidden values of PhysioNet 2012, set A, beside carrying forward and straight lines."""
    data = load_clinical("PhysioNet2012-A")
    data = data.select(np.flatnonzero(data.lengths > 1))
    train, test = data.split(0.8, 0.2, seed=seed)
    train, test = clipped(train, test)
    model = Interpolator(training=TrainingOptions(seed=seed, verbose=verbose)).fit(train).require_complete()
    return compared(model, train, test, seed) | {"seconds": model.metrics_["seconds"]}


_UEA = {
    "RacketSports-0": ("RacketSports", 0.0, "contiformer"),
    "RacketSports-30": ("RacketSports", 0.3, "contiformer"),
    "BasicMotions-30": ("BasicMotions", 0.3, "contiformer"),
    "JapaneseVowels-30": ("JapaneseVowels", 0.3, "contiformer"),
    "Libras-30": ("Libras", 0.3, "contiformer"),
    "PenDigits-30": ("PenDigits", 0.3, "contiformer"),
    "UWaveGestureLibrary-30": ("UWaveGestureLibrary", 0.3, "contiformer"),
    "JapaneseVowels-30-rocket": ("JapaneseVowels", 0.3, "rocket"),
    "Libras-30-rocket": ("Libras", 0.3, "rocket"),
}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(
            Case(
                name,
                f"official split, {drop:.0%} of the points dropped, validation from train, "
                + ("Classifier()" if backbone == "contiformer" else f"Classifier(backbone={backbone!r})"),
                "accuracy",
                partial(classification, data=data, drop=drop, backbone=backbone),
            )
            for name, (data, drop, backbone) in _UEA.items()
        ),
        Case(
            "ILI-24",
            "36 -> 24, val to choose by, Forecaster()",
            "mse",
            partial(forecasting, data="ILI", horizon=24),
        ),
        Case(
            "ETTh2-24",
            "96 -> 24, val to choose by, Forecaster()",
            "mse",
            partial(forecasting, data="ETTh2", horizon=24),
        ),
        Case(
            "pendulum",
            "generated, given validation set, Regressor(frames=...), two layers, 16 epochs",
            "mse",
            pendulum,
        ),
        Case(
            "spirals",
            "authors' protocol, alpha 0.02, 170 + 30 to learn from, 100 to be judged on",
            "interpolation_rmse",
            partial(spirals, alpha=0.02),
        ),
        Case(
            "mortality",
            "PhysioNet 2012, A -> B, Classifier with options chosen within A",
            "auroc",
            partial(mortality, **MORTALITY_OPTIONS),
        ),
        Case(
            "mortality-boosting",
            'PhysioNet 2012, A -> B, Classifier(backbone="boosting")',
            "auroc",
            partial(mortality, backbone="boosting"),
        ),
        Case(
            "clinical-interpolation",
            "PhysioNet 2012 A, clipped at 0.1 and 99.9 %, 80 % of the stays to learn from; of the others 20 % hidden",
            "nll",
            clinical_interpolation,
        ),
    )
}


def measure(
    names: list[str], seeds: list[int], path: Path, verbose: int, notify: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run the cases and seeds that the file lacks, write after each run, and return all of their rows."""
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
            seconds = time.perf_counter() - began
            rows.append(
                {
                    "case": name,
                    "seed": seed,
                    "protocol": CASES[name].protocol,
                    "metrics": {"seconds": seconds, **metrics},
                    "seconds_in_all": round(seconds, 1),
                    "machine": machine_facts(),
                }
            )
            write_text(path, json.dumps(rows, indent=1))
            notify(f"{name} seed {seed}: {CASES[name].metric} {metrics[CASES[name].metric]:.4g}")
    return [row for row in rows if row["case"] in names and row["seed"] in seeds]


def summary(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each case: metric, its mean over the seeds, each of them, seconds of training, commits, protocol."""
    lines: list[tuple[str, ...]] = []
    for name in dict.fromkeys(row["case"] for row in rows):
        own = [row for row in rows if row["case"] == name]
        metric = CASES[name].metric
        values = [row["metrics"][metric] for row in own]
        seconds = f"{np.mean([row['metrics']['seconds'] for row in own]):.0f}"
        commits = " ".join(dict.fromkeys(str(row["machine"]["commit"]) for row in own))
        each = " ".join(f"{value:.4g}" for value in values)
        lines.append((name, metric, f"{np.mean(values):.4g}", each, seconds, commits, own[0]["protocol"]))
    return lines


def hide(data: SeriesSet, seed: int) -> list[tuple[Series, NDArray[np.bool_]]]:
    """Each series without a share of its observed values, and where they were."""
    pairs = []
    for number, one in enumerate(data):
        draw = np.random.default_rng([seed, 17, number])
        hidden = one.observed & (draw.random(one.values.shape) < HIDDEN)
        pairs.append((replace(one, values=np.where(hidden, np.nan, one.values), label=None), hidden))
    return pairs


def clipped(train: SeriesSet, test: SeriesSet) -> tuple[SeriesSet, SeriesSet]:
    """Both without what is beyond the quantiles 0.1 and 99.9 % of the training values: errors of measurement."""
    low, high = np.nanquantile(np.concatenate([one.values for one in train]), [0.001, 0.999], axis=0)

    def limited(series: Series) -> Series:
        return replace(series, values=np.clip(series.values, low, high).astype(series.values.dtype))

    return train.map(limited), test.map(limited)


def carried_forward(series: Series, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last value before, for each channel; the training mean where there is none."""
    out = np.empty(series.values.shape)
    last = mean.copy()
    for row, values in enumerate(series.values):
        out[row] = last
        last = np.where(np.isnan(values), last, values)
    return out


def on_lines(series: Series, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """On the line between the neighbouring values, held outside; the training mean where there is none."""
    out = np.tile(mean, (len(series), 1))
    for channel in range(series.channels):
        known = ~np.isnan(series.values[:, channel])
        if known.any():
            out[:, channel] = np.interp(series.times, series.times[known], series.values[known, channel])
    return out


def compared(model: Interpolator, train: SeriesSet, test: SeriesSet, seed: int) -> dict[str, float]:
    """MSE and negative log-likelihood of the hidden test values in units of each channel's standard deviation.

    The simple methods get a normal law whose standard deviation, one for each channel, is that of their own errors on
    hidden training values.
    """
    std, mean = np.array(model.scaling_.std), np.array(model.scaling_.mean)
    # a channel that never varies tells nothing
    varies = np.nanstd(np.concatenate([one.values for one in train]), axis=0) > 0
    test = test.map(lambda one: replace(one, values=np.where(varies, one.values, np.nan)))
    pairs = hide(test, seed)
    truth = np.concatenate([one.values[hidden] for one, (_, hidden) in zip(test, pairs, strict=True)])
    channel = np.concatenate([np.nonzero(hidden)[1] for _, hidden in pairs])
    unit = std[channel]
    seen = SeriesSet([series for series, _ in pairs], schema=replace(test.schema, classes=None))
    said, spread = model.predict(seen, return_std=True)
    ours = np.concatenate([one.values[hidden] for one, (_, hidden) in zip(said, pairs, strict=True)])
    sigma = np.concatenate([one.values[hidden] for one, (_, hidden) in zip(spread, pairs, strict=True)])
    scores = _scores("", (ours - truth) / unit, sigma / unit)
    inside = np.abs(ours - truth) <= NormalDist().inv_cdf(0.95) * sigma
    scores["coverage90"] = float(inside.mean())
    rehearsed = hide(train, seed + 1)
    for name, method in (("carried_forward", carried_forward), ("linear", on_lines)):
        errors = [
            (method(series, mean) - one.values)[hidden] for one, (series, hidden) in zip(train, rehearsed, strict=True)
        ]
        where = np.concatenate([np.nonzero(hidden)[1] for _, hidden in rehearsed])
        rehearsal = np.concatenate(errors)
        own = np.array([_spread(rehearsal[where == c], std[c]) for c in range(len(std))])
        miss = np.concatenate([method(series, mean)[hidden] for series, hidden in pairs]) - truth
        scores |= _scores(f"{name}_", miss / unit, (own / std)[channel])
    return scores


def _spread(errors: NDArray[np.float64], otherwise: float) -> float:
    return float(np.sqrt((errors**2).mean())) if len(errors) > 1 and errors.any() else otherwise


def _scores(prefix: str, miss: NDArray[np.float64], sigma: NDArray[np.float64]) -> dict[str, float]:
    nll = np.log(sigma) + (miss / sigma) ** 2 / 2 + np.log(2 * np.pi) / 2
    return {f"{prefix}mse": float((miss**2).mean()), f"{prefix}nll": float(nll.mean())}

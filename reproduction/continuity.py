"""Experiment on continuity: curves from five to ten noisy observations, with a gap, and continued beyond them.

One training serves all questions. A model learns from series of 5 to 10 observations with a gap of 40 % of the observed
window, and is asked for the true curve at all times up to 30 % beyond the window. It is then judged on new curves, once
as it was trained, and once for every value of five sweeps: the number of observations, the width of the gap, denser
sampling than in training, observations that drop out, and curves that run slower or faster than in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer import Interpolator
from contiformer.data import Schema, Series, SeriesSet
from contiformer.data.synthetic import Oscillators, generate_spirals
from reproduction.experiments import (
    STATIC_TWIN,
    Budget,
    Cell,
    Experiment,
    Metric,
    Metrics,
    Outcome,
    Protocol,
    configuration,
    model_options,
)
from reproduction.sweeps import LAYERS, MODELS, Sweep, draw_sweeps, metric_sheets, samplings_of, sweep_sheets, swept

DATA = ("oscillators", "spirals")
#: Curves to learn from and training steps of each setting.
SETTINGS = {"curves2000": (2000, 1200), "curves300": (300, 1200), "steps3600": (2000, 3600)}
SEEDS = (0, 1, 2, 3, 4)
VALIDATION, TEST = 200, 200
#: One recipe for all models.
RECIPE: dict[str, Any] = {
    "law": "point",
    "d_model": 32,
    "dropout": 0.0,
    "window": 0,
    "weight_decay": 0.0,
    "learning_rate": 0.005,
    "batch_size": 32,
    "keep": "best",
    "epochs": 1,
    "patience": 1.0,
}
QUICK: dict[str, Any] = {"min_steps": 60}
#: Times of a curve, and the part of them that is observed. Observations are at even places, and every sixth odd one is
#: asked for: never at an observation.
TIMES, WINDOW = 261, 201
ASKED = np.arange(1, TIMES, 6)
#: Of the observations, in standard deviations of a channel over all curves.
NOISE = 0.05


@dataclass(frozen=True)
class Sampling:
    """How curves are observed.

    Attributes:
        points: least and largest number of observations.
        gap: share of the window without any.
        speed: of the curve: the same points come at times divided by it.
        drop: share of the observations that are lost.
    """

    points: tuple[int, int] = (5, 10)
    gap: float = 0.4
    speed: float = 1.0
    drop: float = 0.0


TRAINED = Sampling()
_BEYOND = "RMSE beyond the window"
SWEEPS = {
    "observations": Sweep("observations", _BEYOND, {n: (Sampling((n, n)), "beyond") for n in range(5, 11)}),
    "gap": Sweep(
        "gap, share of the window",
        "RMSE in the gap",
        {gap: (Sampling((8, 8), gap), "gap") for gap in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)},
    ),
    "density": Sweep(
        "observations, no gap; 5 to 10 in training",
        "RMSE inside the window",
        {n: (Sampling((n, n), 0.0), "inside") for n in (5, 10, 20, 40)},
    ),
    "dropout": Sweep(
        "share of 10 observations that drop out; none in training",
        _BEYOND,
        {drop: (Sampling((10, 10), drop=drop), "beyond") for drop in (0.0, 0.3, 0.5, 0.7)},
    ),
    "speed": Sweep(
        "speed of the curve; 1 in training",
        _BEYOND,
        {s: (Sampling(speed=s), "beyond") for s in (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)},
    ),
}


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [
        Cell("continuity", data, setting, model, seed, protocol)
        for seed in SEEDS
        for setting in SETTINGS
        for data in DATA
        for model in MODELS
    ]


@lru_cache(maxsize=2)
def curves(data: str, seed: int) -> NDArray[np.float64]:
    """True curves [n, TIMES, 2] of test, validation and training, scaled to a standard deviation of 1 per channel."""
    n = TEST + VALIDATION + max(SETTINGS.values())[0]
    if data == "oscillators":
        # 0.8 to 3.2 periods within the window, which is 10 long
        rng = np.random.default_rng([seed, 0])
        omega, zeta = rng.uniform(0.5, 2.0, n), rng.uniform(0.02, 0.2, n)
        position, velocity = rng.standard_normal((2, n))
        found = Oscillators(omega, zeta, position, omega * velocity).at(np.arange(TIMES) / 20)
    else:
        found = generate_spirals(n, alpha=0.2, n_times=TIMES, seed=seed).clean.double().numpy()
    scaled: NDArray[np.float64] = (found - found.mean((0, 1))) / found.std((0, 1))
    return scaled


def observe(
    truth: NDArray[np.float64], sampling: Sampling, seed: Sequence[int]
) -> tuple[SeriesSet, dict[str, NDArray[np.bool_]]]:
    """Series of noisy observations with the true curve as their target, and the target times [n, Q] of each region.

    At another speed the same points of a curve come at times divided by it.
    """
    times = np.arange(TIMES) / (WINDOW - 1)
    series, gaps = [], []
    for i, curve in enumerate(truth):
        rng = np.random.default_rng([*seed, i])
        begin = rng.uniform(0, 1 - sampling.gap)
        hidden = (times > begin) & (times < begin + sampling.gap)
        allowed = 2 * np.flatnonzero(~hidden[:WINDOW:2])
        count = min(int(rng.integers(sampling.points[0], sampling.points[1] + 1)), len(allowed))
        kept = count - round(sampling.drop * count)
        chosen = np.sort(rng.choice(allowed, count, replace=False)[:kept])
        noisy = curve[chosen] + NOISE * rng.standard_normal((kept, curve.shape[1]))
        when, targets = times / sampling.speed, curve[ASKED]
        series.append(Series.of(when[chosen], noisy, target_times=when[ASKED], target_values=targets, id=i))
        gaps.append(hidden[ASKED])
    gap, beyond = np.stack(gaps), np.tile(times[ASKED] > 1, (len(truth), 1))
    gap &= ~beyond
    channels = ("a", "b")
    return SeriesSet(series, schema=Schema(channels, targets=channels)), {
        "beyond": beyond,
        "gap": gap,
        "inside": ~gap & ~beyond,
    }


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Interpolator(backbone=...)``, one recipe for all models; one training, judged by all sweeps."""
    own, _ = model_options(cell.model)
    test, validation, learning = np.split(curves(cell.data, cell.seed), [TEST, TEST + VALIDATION])
    count, steps = SETTINGS[cell.setting]
    layers = {"n_layers": LAYERS[own["backbone"]]} if own["backbone"] in LAYERS else {}
    options = {**RECIPE, "min_steps": steps, **own, **layers, **(QUICK if budget == "quick" else {})}
    model = Interpolator.from_options(**options, seed=cell.seed, verbose=verbose)
    training, _ = observe(learning[:count], TRAINED, (cell.seed, 1))
    model.fit(training, validation_data=observe(validation, TRAINED, (cell.seed, 2))[0]).require_complete()
    metrics = errors(model, test, TRAINED, (cell.seed, 3))
    found = {sampling: errors(model, test, sampling, (cell.seed, 4)) for sampling in samplings_of(SWEEPS)}
    sweeps = swept(SWEEPS, found)
    metrics |= {"dense": sweeps["density"]["40"]["inside"], "slow": sweeps["speed"]["0.5"]["beyond"]}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"], "sweeps": sweeps})


def errors(model: Interpolator, truth: NDArray[np.float64], sampling: Sampling, seed: Sequence[int]) -> Metrics:
    """RMSE in each region that has target times."""
    data, regions = observe(truth, sampling, seed)
    said = model.predict(data, at=[one.target_times for one in data])
    squared = np.stack([(a.values - b.target_values) ** 2 for a, b in zip(said, data, strict=True)]).mean(-1)
    return {name: float(np.sqrt(squared[there].mean())) for name, there in regions.items() if there.any()}


_SETTINGS = ", ".join(f"{name}: {n:,} curves to learn from, {k:,} steps" for name, (n, k) in SETTINGS.items())
EXPERIMENT = Experiment(
    name="continuity",
    title="Where continuous attention pays: curves from 5 to 10 observations with a gap, continued by 30 %",
    metrics=(
        Metric("beyond", _BEYOND, "min"),
        Metric("gap", "RMSE in the gap", "min"),
        Metric("inside", "RMSE inside, outside of the gap", "min"),
        Metric("dense", "RMSE inside, 40 observations", "min"),
        Metric("slow", "RMSE beyond the window, half the speed", "min"),
    ),
    grid=grid,
    run=run,
    version=2,
    draw=lambda rows, path: draw_sweeps(rows, SWEEPS, path),
    sheets=metric_sheets,
    further_sheets=partial(sweep_sheets, sweeps=SWEEPS),
    ranked=(STATIC_TWIN,),
    note=(
        f"Not in the paper. {_SETTINGS}; {VALIDATION} curves to choose by, {TEST} to be judged on, generated for each "
        "seed; errors against the true curve in standard deviations of a channel. All models by one recipe, "
        f"Interpolator(backbone=...). {STATIC_TWIN} is ContiFormer with static scores and values, all else equal."
    ),
)

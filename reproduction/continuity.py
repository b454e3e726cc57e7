"""Experiment on continuity: curves from five to ten noisy observations, with a gap, and continued beyond them.

One training serves all questions. A model learns from series of 5 to 10 observations with a gap of 40 % of the observed
window, and is asked for the true curve at all times up to 30 % beyond the window. It is then judged on new curves, once
as it was trained, and once for every value of four sweeps: the number of observations, the width of the gap, denser
sampling than in training, and curves that run slower or faster than in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer import Interpolator
from contiformer.data import Schema, Series, SeriesSet
from contiformer.data.synthetic import Oscillators, generate_spirals
from contiformer.plots import Entry, Sheet, new_figure, save
from reproduction.comparison import spread
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
from reproduction.results import Results

DATA = ("oscillators", "spirals")
MODELS = ("contiformer", STATIC_TWIN, "transformer", "mtan", "ode_rnn", "s5", "neural_cde")
#: Layers of the models with attention; others have as many as their papers.
LAYERS = dict.fromkeys(("contiformer", "transformer"), 2)
SEEDS = (0, 1, 2, 3, 4)
TRAINING, VALIDATION, TEST = 300, 60, 100
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
    "min_steps": 1200,
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
    """How curves are observed: number of observations, gap as a share of the window, and speed of the curve."""

    points: tuple[int, int] = (5, 10)
    gap: float = 0.4
    speed: float = 1.0


TRAINED = Sampling()
#: Every sweep: its axis, its values with their samplings, and the region that is judged.
SWEEPS: dict[str, tuple[str, dict[float, Sampling], str]] = {
    "observations": ("observations", {n: Sampling((n, n)) for n in range(5, 11)}, "beyond"),
    "gap": ("gap, share of the window", {gap: Sampling((8, 8), gap) for gap in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)}, "gap"),
    "density": (
        "observations, no gap; 5 to 10 in training",
        {n: Sampling((n, n), 0.0) for n in (5, 10, 20, 40)},
        "inside",
    ),
    "speed": (
        "speed of the curve; 1 in training",
        {s: Sampling(speed=s) for s in (0.5, 0.75, 1.0, 1.25, 1.5)},
        "beyond",
    ),
}


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [
        Cell("continuity", data, "sparse", model, seed, protocol) for seed in SEEDS for data in DATA for model in MODELS
    ]


@lru_cache(maxsize=2)
def curves(data: str, seed: int) -> NDArray[np.float64]:
    """True curves [n, TIMES, 2] of training, validation and test, scaled to a standard deviation of 1 per channel."""
    n = TRAINING + VALIDATION + TEST
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
        chosen = np.sort(rng.choice(allowed, count, replace=False))
        noisy = curve[chosen] + NOISE * rng.standard_normal((count, curve.shape[1]))
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
    truth = curves(cell.data, cell.seed)
    learning, validation, test = np.split(truth, [TRAINING, TRAINING + VALIDATION])
    layers = {"n_layers": LAYERS[own["backbone"]]} if own["backbone"] in LAYERS else {}
    options = {**RECIPE, **own, **layers, **(QUICK if budget == "quick" else {}), "seed": cell.seed, "verbose": verbose}
    model = Interpolator.from_options(**options)
    model.fit(
        observe(learning, TRAINED, (cell.seed, 1))[0], validation_data=observe(validation, TRAINED, (cell.seed, 2))[0]
    ).require_complete()
    metrics = errors(model, test, TRAINED, (cell.seed, 3))
    sweeps = {
        name: {f"{x:g}": errors(model, test, sampling, (cell.seed, 4)) for x, sampling in samplings.items()}
        for name, (_, samplings, _) in SWEEPS.items()
    }
    metrics |= {"dense": sweeps["density"]["40"]["inside"], "slow": sweeps["speed"]["0.5"]["beyond"]}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"], "sweeps": sweeps})


def errors(model: Interpolator, truth: NDArray[np.float64], sampling: Sampling, seed: Sequence[int]) -> Metrics:
    """RMSE in each region that has target times."""
    data, regions = observe(truth, sampling, seed)
    said = model.predict(data, at=[one.target_times for one in data])
    squared = np.stack([(a.values - b.target_values) ** 2 for a, b in zip(said, data, strict=True)]).mean(-1)
    return {name: float(np.sqrt(squared[there].mean())) for name, there in regions.items() if there.any()}


def sweep_values(rows: Sequence[dict[str, Any]], data: str, sweep: str) -> dict[str, dict[str, list[float]]]:
    """Errors of the sweep's region by model and value, a list over seeds."""
    region = SWEEPS[sweep][2]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["data"] == data:
            of_model = found.setdefault(row["model"], {})
            for x, one in row["details"]["sweeps"][sweep].items():
                of_model.setdefault(x, []).append(one[region])
    return found


def sweep_sheets(results: Results) -> list[Sheet]:
    """One table for each data set and sweep."""
    rows = list(results.comparable.rows.values())
    sheets = []
    for data in DATA:
        for sweep, (axis, samplings, region) in SWEEPS.items():
            found = sweep_values(rows, data, sweep)
            heads = [f"{x:g}" for x in samplings]
            means = {model: [float(np.mean(own[x])) for x in heads] for model, own in found.items()}
            best = [min(column) for column in zip(*means.values(), strict=True)] if means else []
            lines = tuple(
                (
                    Entry(model),
                    *(
                        Entry(_said(found[model][x]), strong=value == least)
                        for x, value, least in zip(heads, means[model], best, strict=True)
                    ),
                )
                for model in results.models
                if model in means
            )
            if lines:
                title = f"{data}: RMSE {_REGIONS[region]} by {axis}"
                sheets.append(Sheet(title, ("model", *heads), lines))
    return sheets


_REGIONS = {"beyond": "beyond the window", "gap": "in the gap", "inside": "inside the window"}


def _said(values: list[float]) -> str:
    one = spread(values)
    return f"{one.mean:.3f}" + ("" if one.std is None else f" ±{one.std:.3f}")


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """Error against the value of each sweep, mean over seeds, with a band of one standard error."""
    shown = [data for data in DATA if any(row["data"] == data for row in rows)]
    figure = new_figure(4.2 * len(SWEEPS), 3.4 * len(shown) + 0.5)
    panels = figure.subplots(len(shown), len(SWEEPS), squeeze=False)
    for line, data in zip(panels, shown, strict=True):
        for panel, (sweep, (axis, samplings, region)) in zip(line, SWEEPS.items(), strict=True):
            found = sweep_values(rows, data, sweep)
            for number, model in enumerate(model for model in MODELS if model in found):
                heads = [f"{x:g}" for x in samplings]
                spreads = [spread(found[model][x]) for x in heads]
                mean = np.array([one.mean for one in spreads])
                error = np.array([one.error or 0.0 for one in spreads])
                colour = f"C{number}"
                style = {"color": colour, "linewidth": 2.2 if model == "contiformer" else 1.2, "label": model}
                panel.plot(list(samplings), mean, marker="o", markersize=3, **style)
                panel.fill_between(list(samplings), mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
            panel.set_xlabel(axis)
            panel.set_title(f"{data}: RMSE {_REGIONS[region]}", fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return save(figure, path)


EXPERIMENT = Experiment(
    name="continuity",
    title="Where continuous attention pays: curves from 5 to 10 observations with a gap, continued by 30 %",
    metrics=(
        Metric("beyond", "RMSE beyond the window", "min"),
        Metric("gap", "RMSE in the gap", "min"),
        Metric("inside", "RMSE inside, outside of the gap", "min"),
        Metric("dense", "RMSE inside, 40 observations", "min"),
        Metric("slow", "RMSE beyond the window, half the speed", "min"),
    ),
    grid=grid,
    run=run,
    draw=draw,
    further_sheets=sweep_sheets,
    ranked=(STATIC_TWIN,),
    note=(
        f"Not in the paper. {TRAINING} curves to learn from, {VALIDATION} to choose by, {TEST} to be judged on, "
        "generated for each seed; errors against the true curve in standard deviations of a channel. All models by "
        f"one recipe, Interpolator(backbone=...) with {RECIPE['min_steps']} steps. {STATIC_TWIN} is ContiFormer with "
        "static scores and values, all else equal."
    ),
)

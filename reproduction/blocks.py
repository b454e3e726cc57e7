"""Experiment on continuity in clinical records: all values of a record in a block of time are hidden, and asked for.

One training for each model and set: blocks of several lengths, at places drawn at random. The model is then judged on
other records by the length of the block, by the time from a hidden value to the nearest visible row, and with rows
missing that were there in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from contiformer import Interpolator
from contiformer.data import Schema, Series, SeriesSet
from contiformer.data.catalog import load_clinical
from reproduction import continuity
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
    not_here,
)
from reproduction.sweeps import LAYERS, MODELS, Sweep, draw_sweeps, metric_sheets, samplings_of, sweep_sheets, swept

DATA = ("PhysioNet2012-A", "NAFLD")
SEEDS = (0, 1, 2, 3, 4)
#: Records to learn from, to choose by, and to be judged on, drawn for each seed; with so many rows at least.
LEARNING, VALIDATION, TEST, ROWS = 800, 200, 400, 10
#: Blocks drawn for each record that is learned from.
COPIES = 3
#: Values farther from the mean count as that far, in standard deviations of their channel: many are errors of entry.
FARTHEST = 5.0
#: One recipe for all models.
RECIPE: dict[str, Any] = {**continuity.RECIPE, "learning_rate": 0.003, "dropout": 0.1, "min_steps": 400}
QUICK: dict[str, Any] = {"min_steps": 30}
#: Borders between the regions of the time to the nearest visible row, in shares of the record.
DISTANCES = {"near": 0.02, "middle": 0.06, "far": 0.12, "farthest": 1.0}


@dataclass(frozen=True)
class Sampling:
    """How records are hidden.

    Attributes:
        block: least and largest length, as shares of the time from the first row to the last.
        drop: share of the visible rows that are lost.
    """

    block: tuple[float, float] = (0.0625, 0.5)
    drop: float = 0.0


TRAINED = Sampling()
_ERROR, _HALF = "RMSE of hidden values", Sampling((0.5, 0.5))
SWEEPS = {
    "block": Sweep(
        "block, share of the record (0.25 is 12 of 48 hours)",
        _ERROR,
        {share: (Sampling((share, share)), "hidden") for share in (0.0625, 0.125, 0.25, 0.5)},
    ),
    "distance": Sweep(
        "time to the nearest visible row, up to a share of the record; block of half of it",
        _ERROR,
        {border: (_HALF, region) for region, border in DISTANCES.items()},
    ),
    "dropout": Sweep(
        "share of visible rows that drop out, block of a quarter; none in training",
        _ERROR,
        {drop: (Sampling((0.25, 0.25), drop), "hidden") for drop in (0.0, 0.3, 0.5, 0.7)},
    ),
}


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [
        Cell("continuity-blocks", data, "blocks", model, seed, protocol)
        for seed in SEEDS
        for data in DATA
        for model in MODELS
    ]


@lru_cache(maxsize=1)
def records(data: str, seed: int) -> tuple[SeriesSet, SeriesSet, SeriesSet]:
    """Records to learn from, to choose by and to be judged on, in standard deviations of the first part's channels.

    Times are shares of the time from the first row of a record to the last.
    """
    found = load_clinical(data, **({"until": None} if data == "NAFLD" else {}))
    enough = [one for one in found if len(one) >= ROWS and one.span > 0]
    drawn = np.random.default_rng([seed, 0]).permutation(len(enough))[: LEARNING + VALIDATION + TEST]
    chosen = [enough[i] for i in drawn]
    known = np.concatenate([one.values for one in chosen[:LEARNING]]).astype(np.float64)
    mean, std = np.nanmean(known, 0), np.nanstd(known, 0)
    std = np.where(std > 0, std, 1.0)
    scaled = [
        Series.of(
            (one.times - one.times[0]) / one.span,
            np.clip((one.values - mean) / std, -FARTHEST, FARTHEST).astype(np.float32),
            id=one.id,
        )
        for one in chosen
    ]
    ends = (0, LEARNING, LEARNING + VALIDATION, len(scaled))
    schema = Schema(found.channels)
    learning, validation, test = (SeriesSet(scaled[a:b], schema=schema) for a, b in pairwise(ends))
    return learning, validation, test


def hide(data: SeriesSet, sampling: Sampling, seed: Sequence[int]) -> SeriesSet:
    """The records with the rows of a block as their target, where some row is hidden and two are visible."""
    found = []
    for i, one in enumerate(data):
        rng = np.random.default_rng([*seed, i])
        share, place = rng.uniform(*sampling.block), rng.random()
        order = rng.random(len(one))
        begin = place * (1 - share)
        hidden = (one.times >= begin) & (one.times < begin + share)
        visible = ~hidden
        # the rows that are drawn last go first
        lost = np.flatnonzero(visible)[np.argsort(order[visible])][: round(sampling.drop * visible.sum())]
        visible[lost] = False
        if hidden.any() and visible.sum() > 1:
            seen = one.points(visible)
            found.append(replace(seen, target_times=one.times[hidden], target_values=one.values[hidden]))
    return SeriesSet(found, schema=Schema(data.channels, targets=data.channels))


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Interpolator(backbone=...)``, one recipe for all models; one training, judged by all sweeps."""
    own, _ = model_options(cell.model)
    learning, validation, test = records(cell.data, cell.seed)
    copies = [hide(learning, TRAINED, (cell.seed, 1, number)) for number in range(COPIES)]
    # each with a name of its own
    several = [replace(one, id=f"{one.id}.{number}") for number, copy in enumerate(copies) for one in copy]
    layers = {"n_layers": LAYERS[own["backbone"]]} if own["backbone"] in LAYERS else {}
    options = {**RECIPE, **own, **layers, **(QUICK if budget == "quick" else {}), "seed": cell.seed, "verbose": verbose}
    model = Interpolator.from_options(**options)
    model.fit(
        SeriesSet(several, schema=copies[0].schema), validation_data=hide(validation, TRAINED, (cell.seed, 2))
    ).require_complete()
    found = {sampling: errors(model, test, sampling, (cell.seed, 3)) for sampling in samplings_of(SWEEPS)}
    sweeps = swept(SWEEPS, found)
    metrics = {
        "quarter": sweeps["block"]["0.25"]["hidden"],
        "half": sweeps["block"]["0.5"]["hidden"],
        "dropout": sweeps["dropout"]["0.7"]["hidden"],
    }
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"], "sweeps": sweeps})


def errors(model: Interpolator, test: SeriesSet, sampling: Sampling, seed: Sequence[int]) -> Metrics:
    """RMSE of all hidden values, and of those in each region of the distance."""
    data = hide(test, sampling, seed)
    said = model.predict(data, at=[one.target_times for one in data])
    squares, distances = [], []
    for a, b in zip(said, data, strict=True):
        assert b.target_times is not None
        assert b.target_values is not None
        known = ~np.isnan(b.target_values)
        nearest = np.abs(b.target_times[:, None] - b.times[None]).min(1)
        squares.append(((a.values - b.target_values) ** 2)[known])
        distances.append(np.broadcast_to(nearest[:, None], known.shape)[known])
    squared, distance = np.concatenate(squares), np.concatenate(distances)
    region = np.searchsorted(list(DISTANCES.values()), distance)
    found = {"hidden": float(np.sqrt(squared.mean()))}
    return found | {
        name: float(np.sqrt(squared[region == n].mean())) for n, name in enumerate(DISTANCES) if (region == n).any()
    }


EXPERIMENT = Experiment(
    name="continuity-blocks",
    title="Where continuous attention pays: blocks of time hidden in clinical records",
    metrics=(
        Metric("quarter", f"{_ERROR}, block of a quarter", "min"),
        Metric("half", f"{_ERROR}, block of half", "min"),
        Metric("dropout", f"{_ERROR}, block of a quarter, 70 % of the visible rows dropped", "min"),
    ),
    grid=grid,
    run=run,
    absent=not_here,
    draw=lambda rows, path: draw_sweeps(rows, SWEEPS, path),
    sheets=metric_sheets,
    further_sheets=partial(sweep_sheets, sweeps=SWEEPS),
    ranked=(STATIC_TWIN,),
    note=(
        f"Not in the paper. {LEARNING} records to learn from, {VALIDATION} to choose by, {TEST} to be judged on, drawn "
        f"for each seed from those with {ROWS} rows or more; errors in standard deviations of a channel, values beyond "
        f"{FARTHEST:g} count as that far. All models by one recipe, Interpolator(backbone=...) with "
        f"{RECIPE['min_steps']} steps."
    ),
)

"""Noisy spirals, observed at irregular times of their first half, continued by one ContiFormer layer.

The model sees 30 noisy points of the first half of a curve and is asked for the curve at any time of both halves. It is
trained on the true curves of other spirals, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.data.synthetic import Spirals, generate_spirals, spiral_set
from contiformer.data.synthetic.spirals import LAST_ANGLE
from contiformer.estimators import Regressor

POINTS, ALPHA, NOISE = 30, 0.02, 0.1
#: With the authors' 6π + 1 the clockwise curves end at radius 15 and their observed half is a dot in the middle of the
#: picture; here they end where the others do, at radius 6π b.
END = LAST_ANGLE + 50 / LAST_ANGLE
#: Times of a training curve that are asked for: they are cheaper than all 150, and teach nearly as much.
QUERIES = 32
VALIDATION, TEST = 64, 100

#: Parameters of the estimator. Many small steps learn more in a given time than few large ones.
PARAMETERS: dict[str, Any] = {
    "d_model": 32,
    "dropout": 0.0,
    "window": 0,
    "backbone_options": {"n_heads": 4, "time_unit": 4.0},
    # the angle of a spiral is a matter of the time itself, not of the time since the first observation
    "time_origin": "global",
    "keep_points": 1.0,
    "batch_size": 16,
    "min_steps": 0,
    "learning_rate": 0.02,
    "warmup": 0.03,
    "weight_decay": 0.0,
    "patience": 1.0,
}


@dataclass(frozen=True)
class Data:
    """Spirals to learn from, to choose the best epoch by, and to judge it on.

    Attributes:
        options: what the generator of the name ``spirals`` makes all of them from, the test part last.
        train, test: with the true parameters, for the baselines and the picture.
        training, validation, testing: as series, with the true curve as the target.
    """

    options: dict[str, Any]
    train: Spirals
    test: Spirals
    training: SeriesSet
    validation: SeriesSet
    testing: SeriesSet


def make_data(seed: int, n_train: int = 2000) -> Data:
    """Three sets with nothing in common."""
    options: dict[str, Any] = {"points": POINTS, "alpha": ALPHA, "noise": NOISE, "end": END, "seed": seed}
    n = n_train + VALIDATION + TEST
    spirals, series = generate_spirals(n, **options), spiral_set(n, **options)
    draw = np.random.default_rng(seed)
    return Data(
        options | {"n": n},
        spirals[:n_train],
        spirals[n_train + VALIDATION :],
        series[:n_train].map(lambda one: _asked_less(one, draw)),
        series[n_train : n_train + VALIDATION],
        series[n_train + VALIDATION :],
    )


def _asked_less(one: Series, draw: np.random.Generator) -> Series:
    assert one.target_times is not None
    assert one.target_values is not None
    some = np.sort(draw.permutation(len(one.target_times))[:QUERIES])
    return replace(one, target_times=one.target_times[some], target_values=one.target_values[some])


def make_model(epochs: int, seed: int, folder: Path, verbose: int = 1) -> Regressor:
    """One ContiFormer layer that tells the two coordinates at any time."""
    return Regressor(**PARAMETERS, max_epochs=epochs, seed=seed, run_dir=folder, verbose=verbose)


def curves(
    model: Regressor, data: SeriesSet, times: Float[Tensor, " query"] | None = None
) -> Float[Tensor, "n query 2"]:
    """The whole curves from the observations, at the 150 times of the spirals or at others."""
    asked = data[0].target_times if times is None else times.double().numpy()
    return torch.from_numpy(np.stack([one.values for one in model.predict(data, at=asked)])).float()


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps this small gain little from a second thread, and lose a lot when another program is using it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rms(difference: Tensor) -> float:
    """Root of the mean square over everything."""
    return float(difference.square().mean().sqrt())


@dataclass(frozen=True)
class Errors:
    """Errors of each coordinate against the true curve, in the units of the curve."""

    interpolation_rmse: float
    interpolation_mae: float
    extrapolation_rmse: float
    extrapolation_mae: float

    @classmethod
    def of(cls, predicted: Float[Tensor, "n times 2"], truth: Float[Tensor, "n times 2"]) -> Errors:
        """Interpolation is the first half of the times, in which the observations are; extrapolation the second."""
        halves = (predicted - truth).tensor_split(2, dim=1)
        return cls(*(error for half in halves for error in (rms(half), float(half.abs().mean()))))

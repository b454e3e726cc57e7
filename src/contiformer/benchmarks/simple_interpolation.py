"""Hidden values of sparse series: a model beside carrying forward and straight lines."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.estimators import Interpolator

#: Share of the observed values that is hidden, each with the same chance.
HIDDEN = 0.2


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

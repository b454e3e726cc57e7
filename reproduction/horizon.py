"""The next ten events: optimal-transport distance of predicted from true events (Mei, Qin and Eisner, ICML 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from contiformer import EventPredictor
from contiformer.data import EventSequence, EventSet

#: Events to predict from all before them, sequences to do so for at most, and continuations sampled for each.
AHEAD, SEQUENCES, DRAWS = 10, 100, 20


def transport_distance(
    times: ArrayLike, types: ArrayLike, true_times: ArrayLike, true_types: ArrayLike, cost: float = 1.0
) -> float:
    """The cheapest way to turn predicted events into the true ones.

    Moving an event costs the time it is moved, deleting or inserting one ``cost``; types are never changed.

    Example:
        >>> from reproduction.horizon import transport_distance
        >>> transport_distance([1.0, 5.0], [0, 1], [1.5, 5.0], [0, 0])
        2.5
    """
    a, b = np.asarray(times, float), np.asarray(true_times, float)
    moved = np.abs(a[:, None] - b[None, :])
    moved[np.asarray(types)[:, None] != np.asarray(true_types)[None, :]] = np.inf
    # a pair that is dearer than deleting one event and inserting the other is not matched
    gain = np.maximum(2 * cost - moved, 0.0)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return float(cost * (len(a) + len(b)) - gain[rows, columns].sum())


def mean_gap(data: EventSet) -> float:
    """The mean time between events, the unit of the distance."""
    return float(np.concatenate([np.diff(one.times) for one in data]).mean())


def next_events(model: EventPredictor, test: EventSet, unit: float, seed: int = 0) -> dict[str, float]:
    """Predict the last ten events of each sequence from those before, and compare.

    Predictions are medians of the times and most frequent types over sampled continuations. Distances are in units of
    ``unit``, the mean gap of the training part, and so is the cost of an insertion or a deletion: 20 is no event right.

    Returns:
        ``otd``, the mean optimal-transport distance; ``otd_sequences``, over how many sequences.
    """
    long = [one for one in test if len(one) > AHEAD + 1]
    chosen = [long[n] for n in np.unique(np.linspace(0, len(long) - 1, SEQUENCES).round().astype(int))] if long else []
    distances = []
    for number, one in enumerate(chosen):
        past, future = one.events(slice(-AHEAD)), one.events(slice(-AHEAD, None))
        drawn = model.sample(past, n=AHEAD, draws=DRAWS, seed=seed + number)
        said = _middle(drawn, test.num_types)
        distances.append(transport_distance(said.times / unit, said.types, future.times / unit, future.types))
    return {"otd": float(np.mean(distances)), "otd_sequences": float(len(distances))} if distances else {}


def _middle(drawn: list[EventSequence], num_types: int) -> EventSequence:
    """Medians of the times and most frequent types, step by step."""
    times = np.median([one.times for one in drawn], axis=0)
    counts = np.stack([np.bincount(kinds, minlength=num_types) for kinds in np.stack([d.types for d in drawn]).T])
    return EventSequence(times, counts.argmax(1))

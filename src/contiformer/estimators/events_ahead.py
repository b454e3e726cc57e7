"""Several events ahead by sampling: tables of them, and how good they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.events import EventSequence, EventSet
from contiformer.estimators.event_tables import Events, event_table
from contiformer.estimators.tables import names_of
from contiformer.tasks.events.horizon import temporal_map, transport_distance

if TYPE_CHECKING:
    from contiformer.estimators.event_predictor import EventPredictor

#: Sequences that are judged, at most, and continuations of each.
SEQUENCES, DRAWS = 100, 20


def _drawn(
    model: EventPredictor, one: EventSequence, n: int, draws: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times [draws, n] of sampled continuations, and shares [n, types] of the types at each step."""
    found = model.sample(one, n=n, draws=draws, seed=seed)
    kinds = np.stack([each.types for each in found])
    return np.stack([each.times for each in found]), (kinds[..., None] == np.arange(len(model.type_names_))).mean(0)


def table_ahead(model: EventPredictor, given: Events, n: int, draws: int, seed: int) -> Any:
    """See :meth:`EventPredictor.predict_ahead`."""
    rows = []
    for number, (name, one) in enumerate(zip(names_of(given.data), given.data, strict=True)):
        times, shares = _drawn(model, one, n, draws, seed + number)
        for step, (low, middle, high) in enumerate(np.quantile(times, [0.05, 0.5, 0.95], axis=0).T):
            rows.append((name, step + 1, middle, low, high, model.type_names_[shares[step].argmax()]))
    names = (model.columns_.id or "id", "step", "time", "time_q0.05", "time_q0.95", "type")
    return event_table(given, {name: [row[k] for row in rows] for k, name in enumerate(names)}, names[2:5])


def judge_ahead(model: EventPredictor, data: EventSet, n: int, seed: int = 0) -> dict[str, float]:
    """Predict the last ``n`` events of each sequence from those before, and compare.

    Predicted are median times, with the most frequent type for the distance and the shares of all types for T-mAP, over
    sampled continuations of :data:`SEQUENCES` sequences, evenly taken. The unit of the distance, the cost of an
    insertion or a deletion, and delta of T-mAP are the mean wait of the training data.

    Returns:
        ``otd``, the mean optimal-transport distance, from 0 to 2 n; ``tmap``, from 0 to 1; and ``ahead_sequences``, how
        many sequences are long enough and were judged; empty if there are none.
    """
    long = [one for one in data if len(one) > n + 1]
    if not long:
        return {}
    chosen = [long[k] for k in np.unique(np.linspace(0, len(long) - 1, SEQUENCES).round().astype(int))]
    unit, distances = model.scaling_.unit, []
    said: list[tuple[Any, ...]] = []
    for number, one in enumerate(chosen):
        start, future = one.times[-n - 1], one.events(slice(-n, None))
        drawn, shares = _drawn(model, one.events(slice(-n)), n, DRAWS, seed + number)
        times, truth = (np.median(drawn, axis=0) - start) / unit, (future.times - start) / unit
        distances.append(transport_distance(times, shares.argmax(1), truth, future.types))
        said.append((times, shares, truth, future.types))
    times_, scores, true_times, true_types = zip(*said, strict=True)
    tmap = temporal_map(times_, scores, true_times, true_types, delta=1.0)
    return {"otd": float(np.mean(distances)), "tmap": tmap, "ahead_sequences": float(len(chosen))}

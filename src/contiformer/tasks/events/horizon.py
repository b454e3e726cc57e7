"""Several events ahead: optimal-transport distance and temporal mAP of predicted events from the true ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def transport_distance(
    times: ArrayLike, types: ArrayLike, true_times: ArrayLike, true_types: ArrayLike, cost: float = 1.0
) -> float:
    """The cheapest way to turn predicted events into the true ones (Mei, Qin and Eisner, ICML 2019).

    Moving an event costs the time it is moved, deleting or inserting one ``cost``; types are never changed.

    Example:
        >>> from contiformer.tasks.events.horizon import transport_distance
        >>> transport_distance([1.0, 5.0], [0, 1], [1.5, 5.0], [0, 0])
        2.5
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]  # noqa: PLC0415 - start-up time

    a, b = np.asarray(times, float), np.asarray(true_times, float)
    moved = np.abs(a[:, None] - b[None, :])
    moved[np.asarray(types)[:, None] != np.asarray(true_types)[None, :]] = np.inf
    # a pair that is dearer than deleting one event and inserting the other is not matched
    gain = np.maximum(2 * cost - moved, 0.0)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return float(cost * (len(a) + len(b)) - gain[rows, columns].sum())


def temporal_map(
    times: Sequence[ArrayLike],
    scores: Sequence[ArrayLike],
    true_times: Sequence[ArrayLike],
    true_types: Sequence[ArrayLike],
    delta: float,
) -> float:
    """T-mAP: the mean over types of the average precision of predicted events (Karpukhin et al., HoTPP, 2024).

    Each predicted event has a score for every type. For a type and a threshold, the predicted events of a sequence with
    higher scores are matched one to one with its true events of that type that are at most ``delta`` away, as many as
    possible; matched ones are true positives, others false. Precision and recall are of all sequences together. Types
    without true events do not count, and an event with score 0 is not predicted.

    Args:
        times, scores: of each sequence, [n] and [n, types].
        true_times, true_types: of each sequence, [m] each.
        delta: in the unit of the times.

    Example:
        >>> from contiformer.tasks.events.horizon import temporal_map
        >>> temporal_map([[1.0, 5.0]], [[[0.9, 0.1], [0.2, 0.8]]], [[1.5, 5.0]], [[0, 1]], delta=1.0)
        1.0
    """
    kinds = np.unique(np.concatenate([np.asarray(one, int) for one in true_types]))
    found = []
    for kind in kinds.tolist():
        marks: list[tuple[float, bool]] = []
        positives = 0
        for at, score, true_at, true_kind in zip(times, scores, true_times, true_types, strict=True):
            wanted = np.asarray(true_at, float)[np.asarray(true_kind) == kind]
            positives += len(wanted)
            marks += _matched(np.asarray(at, float), np.asarray(score, float)[:, kind], wanted, delta)
        found.append(_average_precision(marks, positives))
    return float(np.mean(found)) if found else float("nan")


def _matched(
    times: NDArray[np.float64], scores: NDArray[np.float64], wanted: NDArray[np.float64], delta: float
) -> list[tuple[float, bool]]:
    """Each predicted event with a score, and whether it makes the largest matching of those before it larger.

    Events join in the order of their scores; by augmenting paths the matching is the largest for every threshold.
    """
    owner = [-1] * len(wanted)
    near = np.abs(times[:, None] - wanted[None, :]) <= delta

    def place(event: int, tried: set[int]) -> bool:
        for target in np.flatnonzero(near[event]).tolist():
            if target not in tried:
                tried.add(target)
                if owner[target] < 0 or place(owner[target], tried):
                    owner[target] = event
                    return True
        return False

    order = [n for n in np.argsort(-scores, kind="stable").tolist() if scores[n] > 0]
    return [(float(scores[n]), place(n, set())) for n in order]


def _average_precision(marks: Sequence[tuple[float, bool]], positives: int) -> float:
    """``Σ (R_i - R_{i-1}) P_i`` over thresholds from the highest score down; events of one score come together."""
    if not marks:
        return 0.0
    score, right = (np.array(column) for column in zip(*sorted(marks, key=lambda mark: -mark[0]), strict=True))
    hits = np.cumsum(right)
    last = np.append(score[1:] != score[:-1], True)
    recall, precision = hits[last] / positives, hits[last] / (np.flatnonzero(last) + 1)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))

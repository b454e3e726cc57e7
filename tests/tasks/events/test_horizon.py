import itertools

import numpy as np
import pytest

from contiformer import EventPredictor
from contiformer.tasks.events.horizon import temporal_map, transport_distance
from tests.tasks.events.test_renewal import drawn


def _cheapest(a, kinds, b, true_kinds, cost):
    """By trying every partial matching."""
    best = np.inf
    for size in range(min(len(a), len(b)) + 1):
        for rows in itertools.combinations(range(len(a)), size):
            for columns in itertools.permutations(range(len(b)), size):
                pairs = list(zip(rows, columns, strict=True))
                if all(kinds[i] == true_kinds[j] for i, j in pairs):
                    moved = sum(abs(a[i] - b[j]) for i, j in pairs)
                    best = min(best, moved + cost * (len(a) + len(b) - 2 * size))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_transport_distance_is_the_cheapest_matching(seed):
    rng = np.random.default_rng(seed)
    a, b = np.sort(rng.random(4) * 3), np.sort(rng.random(4) * 3)
    kinds, true_kinds = rng.integers(0, 2, 4), rng.integers(0, 2, 4)
    cost = float(rng.uniform(0.1, 1.0))
    expected = _cheapest(a, kinds, b, true_kinds, cost)
    assert transport_distance(a, kinds, b, true_kinds, cost) == pytest.approx(expected)


def test_transport_distance_of_equal_and_of_foreign_events():
    times, kinds = [1.0, 2.0, 3.0], [0, 1, 0]
    assert transport_distance(times, kinds, times, kinds) == 0
    assert transport_distance(times, kinds, times, [2, 2, 2]) == 6
    assert transport_distance([0.0], [0], [100.0], [0], cost=0.5) == 1


# Temporal mAP


def _most(near):
    """The largest one-to-one matching, by trying all."""
    rows, columns = near.shape
    for size in range(min(rows, columns), 0, -1):
        for chosen in itertools.combinations(range(rows), size):
            for targets in itertools.permutations(range(columns), size):
                if all(near[i, j] for i, j in zip(chosen, targets, strict=True)):
                    return size
    return 0


def _by_thresholds(times, scores, true_times, true_types, delta):
    """The definition: a matching for every threshold."""
    found = []
    for kind in sorted({int(k) for one in true_types for k in one}):
        levels = sorted({s for one in scores for s in one[:, kind] if s > 0}, reverse=True)
        area, before = 0.0, 0.0
        positives = sum(int((one == kind).sum()) for one in true_types)
        for level in levels:
            hits = said = 0
            for at, score, truth, kinds in zip(times, scores, true_times, true_types, strict=True):
                chosen = at[score[:, kind] >= level]
                said += len(chosen)
                hits += _most(np.abs(chosen[:, None] - truth[kinds == kind][None, :]) <= delta)
            area += (hits / positives - before) * hits / said
            before = hits / positives
        found.append(area)
    return float(np.mean(found))


@pytest.mark.parametrize("seed", range(8))
def test_temporal_map_is_that_of_its_definition(seed):
    rng = np.random.default_rng(seed)
    times, truth = ([np.sort(rng.random(4) * 4) for _ in range(3)] for _ in range(2))
    scores = [rng.integers(0, 5, (4, 2)) / 4 for _ in range(3)]
    kinds = [rng.integers(0, 2, 4) for _ in range(3)]
    expected = _by_thresholds(times, scores, truth, kinds, 0.5)
    assert temporal_map(times, scores, truth, kinds, 0.5) == pytest.approx(expected)


def test_temporal_map_by_hand():
    scores = [[[0.9, 0.1], [0.8, 0.2], [0.5, 0.5]]]
    # type 0: right, wrong, right: 1/2 · 1 + 1/2 · 2/3; type 1: nothing within reach
    found = temporal_map([[1.1, 5.0, 2.2]], scores, [[1.0, 2.0, 3.0]], [[0, 0, 1]], delta=0.5)
    assert found == pytest.approx((5 / 6 + 0) / 2)
    # the first could take either event, and leaves the one to the second that this one needs
    assert temporal_map([[1.5, 0.5]], [[[0.9], [0.8]]], [[1.0, 2.0]], [[0, 0]], delta=1.0) == 1
    assert temporal_map([[1.5, 0.5]], [[[0.9], [0.8]]], [[1.0, 2.0]], [[0, 0]], delta=0.1) == 0


@pytest.mark.parametrize("seed", range(3))
def test_perfect_and_empty_predictions(seed):
    rng = np.random.default_rng(seed)
    truth, kinds = [np.sort(rng.random(6)) for _ in range(4)], [rng.integers(0, 3, 6) for _ in range(4)]
    assert temporal_map(truth, [np.eye(3)[one] for one in kinds], truth, kinds, 0.0) == pytest.approx(1)
    nothing = [np.zeros((0, 3))] * 4
    assert temporal_map([np.zeros(0)] * 4, nothing, truth, kinds, 1.0) == 0


def test_next_events_of_a_clock_are_nearly_right():
    def clock(rng, shape):
        return 2 + 0.01 * rng.random(shape)

    data, new = drawn(clock, [[0.0, 1.0], [1.0, 0.0]]), drawn(clock, [[0.0, 1.0], [1.0, 0.0]], seed=1)
    renewal, poisson = (EventPredictor(backbone=name).fit(data) for name in ("renewal", "poisson"))
    found, other = (model.evaluate(new[:10], ahead=5) for model in (renewal, poisson))
    assert found["tmap"] > 0.95
    assert found["otd"] < 1.5 < other["otd"] <= 10
    assert found["ahead_sequences"] == 10
    assert other["tmap"] < 0.8
    assert found["log_likelihood"] == renewal.evaluate(new[:10])["log_likelihood"]
    assert "tmap" in renewal.metric_meanings()
    assert "tmap" not in renewal.evaluate(new[:10], ahead=60)

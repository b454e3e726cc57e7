from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, EventSequence
from contiformer.data.synthetic import GENERATORS, EventProcess, event_process_set, transition_matrix
from contiformer.data.synthetic.event_process import REST, D, V, X, _softplus, integrate
from tests.data.synthetic_checks import checksum, kolmogorov_smirnov

PAPER = EventProcess()
# the paper's numbers leave little influence; these leave much, so that tests have something to find
STRONG = EventProcess(X=6 * np.array(X), V=2 * np.array(V), D=4 * np.array(D))


def naive_ground(process, sequence, t):
    """The paper's formula, one event after the other."""
    past = [i for i in range(len(sequence)) if sequence.times[i] < t]
    if not past:
        return math.log(2)
    hat = past[-1]
    total = 0.0
    for i in past:
        d = process.D[sequence.types[i]]
        if d == 0:
            continue
        (x, v), (x_hat, v_hat) = sequence.features[i], sequence.features[hat]
        weight = (sequence.times[i] - sequence.times[hat]) * (x * v_hat - x_hat * v)
        total += weight * math.exp(-(t - sequence.times[i]) / d)
    return math.log1p(math.exp(total))


def brute_force_integral(process, sequence, start, end, per_piece=2000):
    """Midpoint rule with one extrapolation, between events."""
    cuts = [start, *sequence.times[(sequence.times > start) & (sequence.times < end)], end]
    total = 0.0
    for a, b in pairwise(cuts):
        means = [
            process.ground_intensity(sequence, a + (b - a) * (np.arange(m) + 0.5) / m).mean()
            for m in (per_piece, 2 * per_piece)
        ]
        total += (b - a) * (4 * means[1] - means[0]) / 3
    return total


@pytest.mark.parametrize("process", [PAPER, STRONG])
def test_intensity_by_its_definition(process):
    sequence = process.simulate(seed=3)
    times = np.concatenate([sequence.times, np.linspace(0, 25, 57)])
    expected = [naive_ground(process, sequence, t) for t in times]
    np.testing.assert_allclose(process.ground_intensity(sequence, times), expected, rtol=1e-12)
    by_type = process.intensity(sequence, times)
    np.testing.assert_allclose(by_type.sum(1), expected, rtol=1e-12)
    last = sequence.types[np.searchsorted(sequence.times, 7.7) - 1]
    np.testing.assert_allclose(
        process.intensity(sequence, [7.7])[0], process.P[last] * naive_ground(process, sequence, 7.7)
    )


def test_intensity_in_parts_is_the_same(monkeypatch):
    sequence, times = STRONG.simulate(seed=3), np.linspace(0, 25, 57)
    whole = STRONG.intensity(sequence, times)
    monkeypatch.setattr("contiformer.data.synthetic.event_process._AT_ONCE", 40)
    assert np.array_equal(STRONG.intensity(sequence, times), whole)


@pytest.mark.parametrize(("process", "seed"), [(PAPER, 0), (STRONG, 1), (STRONG, 2)])
def test_log_likelihood_against_brute_force(process, seed):
    sequence = process.simulate(seed=seed)
    rates = process.P[sequence.types[:-1], sequence.types[1:]]
    grounds = [naive_ground(process, sequence, t) for t in sequence.times[1:]]
    integral = brute_force_integral(process, sequence, 0, sequence.times[-1])
    expected = np.log(rates).sum() + np.log(grounds).sum() - integral
    assert process.log_likelihood(sequence) == pytest.approx(expected, abs=1e-7)


def test_integrals_are_exact_to_the_tolerance():
    for seed in range(20):
        sequence = STRONG.simulate(seed=seed)
        finer = EventProcess(STRONG.X, STRONG.V, STRONG.D, STRONG.P, tolerance=1e-12)
        assert STRONG.log_likelihood(sequence) == pytest.approx(finer.log_likelihood(sequence), abs=1e-8)


def test_rule_halves_where_it_must():
    edges = np.array([-1.0, 0.5, 0.5, 2.0])
    kink = integrate(lambda t: np.abs(t - 0.3), edges, tolerance=1e-10)
    np.testing.assert_allclose(kink, [(1.3**2 + 0.2**2) / 2, 0, (1.7**2 - 0.2**2) / 2], atol=1e-10)
    with pytest.raises(DataError, match="settle"):
        integrate(lambda t: np.random.default_rng(0).random(len(t)), np.array([0.0, 1.0]), tolerance=1e-30)


def test_compensator_adds_up_and_follows_the_types():
    sequence = STRONG.simulate(seed=5)
    edges = np.array([0.0, 0.4, 3.0, 3.0, 11.0, 19.0])
    parts = STRONG.compensator(sequence, edges)
    np.testing.assert_allclose(parts.sum(0), STRONG.compensator(sequence, edges[[0, -1]])[0], atol=1e-8)
    expected = [brute_force_integral(STRONG, sequence, a, b) for a, b in pairwise(edges)]
    np.testing.assert_allclose(parts.sum(1), expected, atol=1e-6)
    alone = EventSequence.of([0.0], [4], features=[[1.0, 1.0]])
    np.testing.assert_allclose(PAPER.compensator(alone, [0.0, 2.0])[0], 2 * REST * PAPER.P[4], atol=1e-9)


@pytest.mark.parametrize(("process", "n"), [(PAPER, 200), (STRONG, 300)])
def test_rescaled_gaps_are_unit_exponential(process, n):
    sequences = event_process_set(n, process=process, seed=1)
    assert kolmogorov_smirnov(np.concatenate([process.residuals(s) for s in sequences])) < 1.63


def test_the_check_notices_a_wrong_process():
    sequences = event_process_set(300, process=STRONG, seed=1)
    assert kolmogorov_smirnov(np.concatenate([REST * np.diff(s.times) for s in sequences])) > 3


def test_types_follow_the_matrix():
    counts = np.zeros((10, 10))
    for s in event_process_set(300, seed=1):
        np.add.at(counts, (s.types[:-1], s.types[1:]), 1)
    seen = counts.sum(1, keepdims=True)
    error = np.sqrt(PAPER.P * (1 - PAPER.P) / seen)
    assert seen.min() > 200
    assert np.abs((counts / seen - PAPER.P) / error).max() < 4.5


def test_truth_is_likelier_than_anything_else_on_average():
    sequences = event_process_set(150, process=STRONG)
    truth = np.array([STRONG.log_likelihood(s) for s in sequences])
    weaker = EventProcess(STRONG.X, STRONG.V, STRONG.D / 2, STRONG.P)
    other_types = EventProcess(STRONG.X, STRONG.V, STRONG.D, transition_matrix(seed=1))
    for other in (weaker, other_types):
        gain = truth - [other.log_likelihood(s) for s in sequences]
        assert gain.mean() > 3 * gain.std() / np.sqrt(len(sequences))


@given(st.integers(0, 1000), st.floats(0, 30))
def test_bound_of_the_thinning_holds_from_then_on(seed, later):
    sequence = STRONG.simulate(8.0, seed=seed)
    now = sequence.times[-1] + later
    bound = _softplus(np.maximum(STRONG._influences(sequence, np.array([now]), True), 0).sum())
    after = now + np.concatenate([[0.0], np.geomspace(1e-9, 100, 300)])
    after[0] = np.nextafter(now, np.inf)
    assert STRONG.ground_intensity(sequence, after).max() <= bound * (1 + 1e-12)


def test_an_event_without_decay_time_acts_only_as_the_last_one():
    features = [[0.7, -0.2], [0.1, 0.5], [0.5, 0.3]]
    times = [0.5, 1.2, 3.0]
    first, second = (EventSequence.of([0, 0.4, 1.0], types, features=features) for types in ([0, 1, 2], [0, 2, 2]))
    without = EventSequence.of([0, 1.0], [0, 2], features=[features[0], features[2]])
    assert D[1] == 0
    # after the third event the second leaves no trace; between the two it does, through x and v
    np.testing.assert_allclose(PAPER.ground_intensity(first, times)[1:], PAPER.ground_intensity(without, times)[1:])
    assert PAPER.ground_intensity(first, times)[0] != PAPER.ground_intensity(without, times)[0]
    assert PAPER.ground_intensity(second, times)[1] != PAPER.ground_intensity(without, times)[1]
    tiny = EventProcess(D=np.where(np.array(D) == 0, 1e-300, D))
    np.testing.assert_array_equal(tiny.ground_intensity(first, times), PAPER.ground_intensity(first, times))


def test_sequences_begin_and_end_as_the_algorithm_says():
    data = event_process_set(30)
    assert data.num_types == 10
    assert [s.id for s in data] == list(range(30))
    assert all(s.times[0] == 0 and s.times[-2] <= 20 < s.times[-1] for s in data)
    cut = event_process_set(30, overshoot=False)
    assert all(a == b.events(slice(-1)) for a, b in zip(cut, data, strict=True))
    full = PAPER.log_likelihood(cut[0], end=20)
    assert full == pytest.approx(PAPER.log_likelihood(cut[0]) - PAPER.compensator(cut[0], [cut[0].times[-1], 20]).sum())


def test_features_have_the_centres_and_spread_of_their_types():
    data = event_process_set(200)
    types = np.concatenate([s.types for s in data])
    error = np.concatenate([s.features for s in data]) - np.stack([X, V], axis=1)[types]
    assert error.std() == pytest.approx(0.01, rel=0.05)
    assert np.abs(error).max() < 0.05
    assert np.array_equal(event_process_set(2)[1].times, PAPER.simulate(seed=1).times)


def test_transition_matrix():
    P = transition_matrix()
    np.testing.assert_allclose(P.sum(1), 1)
    np.testing.assert_allclose(P.max(1), 0.842)
    assert sorted(P.argmax(1)) == list(range(10))
    place, seen = 0, set()
    while place not in seen:
        seen.add(place)
        place = int(P[place].argmax())
    assert len(seen) == 10
    np.testing.assert_array_equal(P, transition_matrix())
    assert not np.array_equal(P, transition_matrix(seed=0))


def test_nothing_to_score():
    assert PAPER.log_likelihood(EventSequence.of([], features=np.zeros((0, 2)))) == 0
    alone = EventSequence.of([2.0], [0], features=[[0.7, -0.2]])
    assert PAPER.log_likelihood(alone) == 0
    assert PAPER.log_likelihood(alone, end=5) == pytest.approx(-3 * REST)
    together = EventSequence.of([0.0, 1.0, 1.0], [0, 1, 2], features=[[0.7, -0.2], [0.1, 0.5], [0.5, 0.3]])
    assert np.isfinite(PAPER.log_likelihood(together))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"X": [1.0, 2.0]}, "one length"),
        ({"D": -np.array(D)}, "not negative"),
        ({"spread": -1.0}, "not negative"),
        ({"V": np.full(10, np.nan)}, "V does not"),
        ({"X": "ten"}, "X does not"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"P": np.ones((10, 10))}, "add up"),
        ({"P": np.eye(3)}, "10 x 10"),
    ],
)
def test_impossible_parameters(arguments, problem):
    with pytest.raises(DataError, match=problem):
        EventProcess(**arguments)


def test_impossible_requests():
    with pytest.raises(DataError, match="x and v"):
        PAPER.log_likelihood(EventSequence.of([0.0, 1.0], [0, 1]))
    with pytest.raises(DataError, match="type 10"):
        PAPER.log_likelihood(EventSequence.of([0.0, 1.0], [0, 10], features=np.zeros((2, 2))))
    with pytest.raises(DataError, match="simulated"):
        PAPER.simulate(np.inf)
    with pytest.raises(DataError, match="more than 3 events"):
        PAPER.simulate(100.0, most_events=3)
    with np.errstate(all="ignore"), pytest.raises(DataError, match="too large"):
        EventProcess(X=1e200 * np.array(X), V=1e200 * np.array(V)).simulate()
    with pytest.raises(DataError, match="likeliest"):
        transition_matrix(likeliest=0.1)


@pytest.mark.parametrize(("seed", "expected"), [(0, "12f1346bbe55b139"), (1, "854c567b22d886ac")])
def test_golden(seed, expected):
    assert checksum(GENERATORS["synthetic"](seed=seed, n=10)) == expected

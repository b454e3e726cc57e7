from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, EventSequence
from contiformer.data.synthetic import GENERATORS, Hawkes, Poisson, hawkes_set, poisson_set
from contiformer.data.synthetic.point_process import HAWKES_EXAMPLE, POISSON_EXAMPLE
from tests.data.synthetic_checks import checksum, kolmogorov_smirnov

MIXED = Hawkes(
    mu=[0.2, 0.4, 0.0],
    alpha=[[0.5, 0.1, 0.4], [0.0, 1.0, 0.2], [0.6, 0.0, 0.3]],
    beta=[[1, 2, 3], [4, 2, 1], [2, 5, 1]],
)


def naive_intensity(process, sequence, t, k):
    past = [(s, j) for s, j in zip(sequence.times, sequence.types, strict=True) if s < t]
    return process.mu[k] + sum(process.alpha[k, j] * math.exp(-process.beta[k, j] * (t - s)) for s, j in past)


def brute_force_integral(process, sequence, start, end, per_piece=400):
    """Simpson's rule between events, from the definition of the intensity."""
    inside = sequence.times[(sequence.times > start) & (sequence.times < end)]
    total = 0.0
    for a, b in zip([start, *inside], [*inside, end], strict=True):
        t = np.linspace(a, b, 2 * per_piece + 1)
        t[0] = np.nextafter(a, b)  # the intensity jumps just after the event
        y = process.intensity(sequence, t).sum(1)
        total += (b - a) / (6 * per_piece) * (y[0] + y[-1] + 4 * y[1::2].sum() + 2 * y[2:-1:2].sum())
    return total


def test_intensity_by_its_definition():
    sequence = MIXED.simulate(20, rng=np.random.default_rng(1))
    times = np.concatenate([sequence.times, [0.0, 3.3, 25.0]])
    expected = [[naive_intensity(MIXED, sequence, t, k) for k in range(3)] for t in times]
    assert len(sequence) > 10
    np.testing.assert_allclose(MIXED.intensity(sequence, times), expected, rtol=1e-12)


def test_intensity_in_parts_is_the_same(monkeypatch):
    sequence = MIXED.simulate(50, rng=np.random.default_rng(2))
    whole = MIXED.intensity(sequence, np.linspace(0, 60, 301))
    monkeypatch.setattr("contiformer.data.synthetic.point_process._AT_ONCE", 1000)
    assert np.array_equal(MIXED.intensity(sequence, np.linspace(0, 60, 301)), whole)


@pytest.mark.parametrize("process", [HAWKES_EXAMPLE, MIXED, POISSON_EXAMPLE, Poisson([0.7, 0.2])])
def test_log_likelihood_against_brute_force(process):
    sequence = process.simulate(30, rng=np.random.default_rng(3))
    rates = process.intensity(sequence, sequence.times)[np.arange(len(sequence)), sequence.types]
    full = np.log(rates).sum() - brute_force_integral(process, sequence, 0, 30)
    assert process.log_likelihood(sequence, start=0, end=30) == pytest.approx(full, abs=1e-8)
    given_first = np.log(rates[1:]).sum() - brute_force_integral(process, sequence, *sequence.times[[0, -1]])
    assert process.log_likelihood(sequence) == pytest.approx(given_first, abs=1e-8)


def test_single_event_likelihood_in_closed_form():
    process = Hawkes([0.5], [[0.8]], 2.0)
    at, end = 1.0, 3.0
    expected = math.log(0.5) - 0.5 * end - 0.4 * (1 - math.exp(-2 * (end - at)))
    assert process.log_likelihood(EventSequence.of([at]), start=0, end=end) == pytest.approx(expected, abs=1e-14)


@given(st.integers(0, 10_000), st.floats(0.1, 39.9))
def test_likelihood_of_a_window_is_the_sum_over_its_parts(seed, cut):
    for process in (MIXED, POISSON_EXAMPLE):
        sequence = process.simulate(40, rng=np.random.default_rng(seed))
        parts = process.log_likelihood(sequence, start=0, end=cut) + process.log_likelihood(sequence, start=cut, end=40)
        assert process.log_likelihood(sequence, start=0, end=40) == pytest.approx(parts, abs=1e-9)


@pytest.mark.parametrize("c", [1e-3, 7.0])
def test_time_in_another_unit_shifts_the_likelihood_by_a_constant(c):
    sequence = MIXED.simulate(40, rng=np.random.default_rng(5))
    slower = Hawkes(MIXED.mu / c, MIXED.alpha / c, MIXED.beta / c)
    stretched = EventSequence.of(c * sequence.times, sequence.types)
    expected = MIXED.log_likelihood(sequence) - (len(sequence) - 1) * math.log(c)
    assert slower.log_likelihood(stretched) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("process", [HAWKES_EXAMPLE, MIXED, POISSON_EXAMPLE, Poisson([0.7, 0.2])])
def test_rescaled_gaps_are_unit_exponential(process):
    sequence = process.simulate(2000, rng=np.random.default_rng(6))
    assert len(sequence) > 1500
    assert kolmogorov_smirnov(process.residuals(sequence, start=0)) < 1.63
    for k in range(process.num_types):
        own = sequence.times[sequence.types == k]
        each = process.compensator(sequence, np.concatenate([[0.0], own]))[:, k]
        assert kolmogorov_smirnov(each) < 1.63


def test_the_check_notices_a_wrong_process():
    sequence = HAWKES_EXAMPLE.simulate(2000, rng=np.random.default_rng(6))
    assert kolmogorov_smirnov(Poisson(HAWKES_EXAMPLE.mean_rate).residuals(sequence, start=0)) > 3


def test_expected_counts():
    # with one decay the mean intensity obeys m' = β μ - (β - α) m from m(0) = μ: exponentials of eigenvalues
    end, n = 20.0, 2000
    decay = 2.0 * np.eye(2) - HAWKES_EXAMPLE.alpha
    values, vectors = np.linalg.eig(decay)
    excess = vectors @ np.diag((1 - np.exp(-values * end)) / values) @ np.linalg.inv(vectors)
    expected = HAWKES_EXAMPLE.mean_rate * end + excess @ (HAWKES_EXAMPLE.mu - HAWKES_EXAMPLE.mean_rate)
    counts = np.array([np.bincount(s.types, minlength=2) for s in hawkes_set(n, end=end, seed=7)])
    assert np.all(np.abs(counts.mean(0) - expected) < 3.5 * counts.std(0) / np.sqrt(n))


def test_poisson_counts_are_poisson():
    counts = np.array([np.bincount(s.types, minlength=3) for s in poisson_set(2000, end=7.0, seed=8)])
    expected = POISSON_EXAMPLE.compensator(EventSequence.of([]), [0, 7.0])[0]
    assert np.all(np.abs(counts.mean(0) - expected) < 3.5 * np.sqrt(expected / 2000))
    assert np.all(np.abs(counts.var(0) / expected - 1) < 0.15)


def test_truth_is_likelier_than_anything_else_on_average():
    data = hawkes_set(200, seed=9)
    truth = np.array([HAWKES_EXAMPLE.log_likelihood(s, start=0, end=50) for s in data])
    for other in (
        Hawkes(HAWKES_EXAMPLE.mu, HAWKES_EXAMPLE.alpha * 0.7, 2.0),
        Hawkes(HAWKES_EXAMPLE.mu, HAWKES_EXAMPLE.alpha, 3.0),
        Poisson(HAWKES_EXAMPLE.mean_rate),
    ):
        gain = truth - [other.log_likelihood(s, start=0, end=50) for s in data]
        assert gain.mean() > 3 * gain.std() / np.sqrt(len(data))


def test_nothing_to_score():
    for process in (HAWKES_EXAMPLE, POISSON_EXAMPLE):
        assert process.log_likelihood(EventSequence.of([])) == 0
        assert process.log_likelihood(EventSequence.of([4.0])) == 0
        expected = -process.compensator(EventSequence.of([]), [0, 3]).sum()
        assert process.log_likelihood(EventSequence.of([]), start=0, end=3) == pytest.approx(expected)
    silent = Hawkes([0.0], [[0.5]], 1.0)
    assert len(silent.simulate(100, rng=np.random.default_rng(0))) == 0
    assert silent.log_likelihood(EventSequence.of([1.0]), start=0, end=2) == -np.inf
    assert silent.log_likelihood(EventSequence.of([1.0, 2.0])) == pytest.approx(
        math.log(0.5) - 1 - 0.5 + 0.5 * math.exp(-1)
    )


def test_events_at_one_time_do_not_see_each_other():
    process = Hawkes([0.5], [[0.8]], 2.0)
    np.testing.assert_allclose(process.intensity(EventSequence.of([1, 1]), [1.0, np.nextafter(1, 2)]), [[0.5], [2.1]])


@pytest.mark.parametrize(
    ("mu", "alpha", "beta", "problem"),
    [
        ([1.0], [[1.0]], 1.0, "explodes"),
        ([1.0, 1.0], [[0.0, 3.0], [3.0, 0.0]], 2.0, "explodes"),
        ([1.0], [[0.5, 0.1]], 1.0, "fit together"),
        ([], np.zeros((0, 0)), 1.0, "fit together"),
        ([-1.0], [[0.5]], 1.0, "negative"),
        ([1.0], [[0.5]], 0.0, "positive"),
        ([np.nan], [[0.5]], 1.0, "mu"),
        (["many"], [[0.5]], 1.0, "mu"),
    ],
)
def test_impossible_parameters(mu, alpha, beta, problem):
    with pytest.raises(DataError, match=problem):
        Hawkes(mu, alpha, beta)


@pytest.mark.parametrize(
    "arguments",
    [
        {"rate": -1.0},
        {"rate": 1.0, "amplitude": 1.1},
        {"rate": 1.0, "period": 0.0},
        {"rate": [1, 2], "phase": [1, 2, 3]},
        {"rate": "x"},
        {"rate": []},
        {"rate": [[1.0]]},
    ],
)
def test_impossible_rates(arguments):
    with pytest.raises(DataError):
        Poisson(**arguments)


def test_impossible_requests():
    rng = np.random.default_rng(0)
    for process in (HAWKES_EXAMPLE, POISSON_EXAMPLE):
        for end in (0.0, -1.0, np.inf, np.nan):
            with pytest.raises(DataError, match="simulated"):
                process.simulate(end, rng=rng)
        with pytest.raises(DataError, match="start <= end"):
            process.log_likelihood(EventSequence.of([1.0]), start=3, end=2)
        with pytest.raises(DataError, match="edges"):
            process.compensator(EventSequence.of([1.0]), [2, 1])
        with pytest.raises(DataError, match="type 7"):
            process.log_likelihood(EventSequence.of([1.0], [7]))
    with pytest.raises(DataError, match="more than 5 events"):
        HAWKES_EXAMPLE.simulate(1000, rng=rng, most_events=5)
    with pytest.raises(DataError, match="shorten"):
        Poisson([1e9]).simulate(10, rng=rng)
    with pytest.raises(DataError, match="-1 sequences"):
        hawkes_set(-1)
    with pytest.raises(DataError, match="seed"):
        poisson_set(1, seed=-3)
    with pytest.raises(DataError, match="nan"):
        HAWKES_EXAMPLE.intensity(EventSequence.of([1.0]), [np.nan])


def test_sets():
    few, many = hawkes_set(3, seed=4), hawkes_set(5, seed=4)
    assert many[:3] == few
    assert few[0] != few[1]
    assert few[0] != hawkes_set(1, seed=5)[0]
    assert many.num_types == 2
    assert len(hawkes_set(0)) == 0
    assert poisson_set(5, seed=4)[:3] == poisson_set(3, seed=4)
    assert max(s.times.max() for s in many) <= 50


@pytest.mark.parametrize(
    ("name", "seed", "expected"),
    [
        ("hawkes", 0, "ad0389722bb2dcf7"),
        ("hawkes", 1, "01933d8de9b7bf52"),
        ("poisson", 0, "a4595746f990cb71"),
        ("poisson", 1, "b94826357a1bdf50"),
    ],
)
def test_golden(name, seed, expected):
    assert checksum(GENERATORS[name](seed=seed, n=20)) == expected

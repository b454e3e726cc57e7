"""Ozaki's recursion gives what the sums over all pairs of events give."""

from __future__ import annotations

import numpy as np
import pytest

from contiformer.data import EventSequence
from contiformer.tasks.events.hawkes_fit import EarlierEvents

TYPES = 3


@pytest.fixture
def sequences():
    rng = np.random.default_rng(0)
    made = []
    for length in (2, 9, 5, 9, 17):
        times = np.sort(rng.uniform(0, 5, length))
        times[1] = times[0]  # at one time the later is excited by the earlier
        made.append(EventSequence.of(times, rng.integers(0, TYPES, length)))
    return made


def decays(beta, shared):
    return np.array(beta) if shared else beta * np.array([[1.0, 0.5, 2.0], [3.0, 1.0, 0.1], [0.7, 1.5, 1.0]])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("beta", [1e-3, 0.7, 40.0])
def test_recursion_equals_pairs(sequences, beta, shared):
    rng = np.random.default_rng(1)
    mu, alpha, beta = rng.uniform(0.1, 1, TYPES), rng.uniform(0.1, 1, (TYPES, TYPES)), decays(beta, shared)
    sums = EarlierEvents(sequences, TYPES)
    found = sums(mu, alpha, beta)
    wide = np.broadcast_to(beta, (TYPES, TYPES))
    rates, by_alpha, by_beta = [[] for _ in range(TYPES)], np.zeros((TYPES, TYPES)), np.zeros((TYPES, TYPES))
    for one in sequences:
        for i, k in list(enumerate(one.types))[1:]:
            pairs = [(j, one.times[i] - t) for j, t in zip(one.types[:i], one.times, strict=False)]
            rate = mu[k] + sum(alpha[k, j] * np.exp(-wide[k, j] * age) for j, age in pairs)
            rates[k].append(rate)
            for j, age in pairs:
                part = alpha[k, j] * np.exp(-wide[k, j] * age) / rate
                by_alpha[k, j] += part
                by_beta[k, j] -= wide[k, j] * age * part
    for kind in range(TYPES):  # the recursion has its own order of events
        np.testing.assert_allclose(np.sort(found.rate[sums.kinds == kind]), np.sort(rates[kind]), rtol=1e-12)
    assert np.array_equal(sums.seen, by_alpha > 0)
    np.testing.assert_allclose(found.by_alpha, by_alpha, rtol=1e-12)
    np.testing.assert_allclose(found.by_beta, by_beta.sum() if shared else by_beta, rtol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_slopes_are_those_of_the_sum_of_logarithms(sequences, shared):
    sums = EarlierEvents(sequences, TYPES)
    rng = np.random.default_rng(2)
    mu, alpha, beta, step = rng.uniform(0.1, 1, TYPES), rng.uniform(0.1, 1, (TYPES, TYPES)), decays(0.9, shared), 1e-6

    def slope(alpha_by, beta_by):
        up, down = (sums(mu, alpha * alpha_by**sign, beta * beta_by**sign).rate for sign in (1, -1))
        return (np.log(up).sum() - np.log(down).sum()) / (2 * step)

    found = sums(mu, alpha, beta)
    for k in range(TYPES):
        for j in range(TYPES):
            factor = np.ones_like(alpha)
            factor[k, j] = np.exp(step)
            assert found.by_alpha[k, j] == pytest.approx(slope(factor, 1.0), rel=1e-6, abs=1e-9)
            if not shared:
                assert found.by_beta[k, j] == pytest.approx(slope(1.0, factor), rel=1e-6, abs=1e-8)
    if shared:
        assert found.by_beta == pytest.approx(slope(1.0, np.exp(step)), rel=1e-6)

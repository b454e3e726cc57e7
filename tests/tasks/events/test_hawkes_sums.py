"""The recursion for equal decays gives what the sums over all pairs give."""

from __future__ import annotations

import numpy as np
import pytest

from contiformer.data import EventSequence
from contiformer.tasks.events.hawkes_fit import ChainSums, PairSums

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


@pytest.mark.parametrize("beta", [1e-3, 0.7, 40.0])
def test_recursion_equals_pairs(sequences, beta):
    rng = np.random.default_rng(1)
    mu, alpha = rng.uniform(0.1, 1, TYPES), rng.uniform(0.1, 1, (TYPES, TYPES))
    chain, pairs = ChainSums(sequences, TYPES), PairSums(sequences, TYPES)
    ours = chain(mu, alpha, np.array(beta))
    theirs = pairs(mu, alpha, np.full((TYPES, TYPES), beta))
    assert np.array_equal(chain.seen, pairs.seen)
    # each has its own order of events
    for kind in range(TYPES):
        np.testing.assert_allclose(
            np.sort(ours.rate[chain.kinds == kind]), np.sort(theirs.rate[pairs.kinds == kind]), rtol=1e-12
        )
    np.testing.assert_allclose(ours.by_alpha, theirs.by_alpha, rtol=1e-12)
    assert ours.by_beta == pytest.approx(np.sum(theirs.by_beta), rel=1e-12)


def test_slopes_are_those_of_the_sum_of_logarithms(sequences):
    chain = ChainSums(sequences, TYPES)
    rng = np.random.default_rng(2)
    mu, alpha, beta, step = rng.uniform(0.1, 1, TYPES), rng.uniform(0.1, 1, (TYPES, TYPES)), 0.9, 1e-6

    def total(alpha, beta):
        return np.log(chain(mu, alpha, np.array(beta)).rate).sum()

    found = chain(mu, alpha, np.array(beta))
    more = (total(alpha, beta * np.exp(step)) - total(alpha, beta * np.exp(-step))) / (2 * step)
    assert found.by_beta == pytest.approx(more, rel=1e-6)
    for k in range(TYPES):
        for j in range(TYPES):
            factor = np.ones_like(alpha)
            factor[k, j] = np.exp(step)
            more = (total(alpha * factor, beta) - total(alpha / factor, beta)) / (2 * step)
            assert found.by_alpha[k, j] == pytest.approx(more, rel=1e-6, abs=1e-9)

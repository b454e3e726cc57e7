import math

import numpy as np
import pytest

from contiformer import EventPredictor
from contiformer.data import EventSequence, EventSet


def drawn(waits, types, seed=0):
    """Sequences of 50 events with these waits, and types by those before them."""
    rng = np.random.default_rng(seed)
    sequences = []
    for row in waits(rng, (40, 50)):
        kinds = [0]
        for _ in range(49):
            kinds.append(int(rng.choice(2, p=types[kinds[-1]])))
        sequences.append(EventSequence.of(np.cumsum(row), kinds))
    return EventSet(sequences, num_types=2)


def gamma(rng, shape):
    return rng.gamma(4.0, 0.5, shape)


ALTERNATING = [[0.1, 0.9], [0.9, 0.1]]


def test_poisson_has_the_likelihood_of_its_closed_form():
    data = drawn(lambda rng, shape: rng.exponential(3.0, shape), [[0.7, 0.3]] * 2)
    model = EventPredictor(backbone="poisson").fit(data, validation_data=data)
    events = sum(len(one) - 1 for one in data)
    rate = events / sum(one.times[-1] - one.times[0] for one in data)
    shares = np.bincount(np.concatenate([one.types[1:] for one in data])) + 0.5
    shares = shares / shares.sum()
    kinds = np.concatenate([one.types[1:] for one in data])
    expected = math.log(rate) - 1 + np.log(shares[kinds]).mean()
    assert model.evaluate(data)["log_likelihood"] == pytest.approx(expected, rel=1e-5)
    # rates do not depend on the history
    rates = model.intensity_at(data[0], [5.0, 17.0, 90.0])
    np.testing.assert_allclose(rates, np.tile(rate * shares, (3, 1)), rtol=1e-5)
    assert model.predict_next(data[:1])["expected_time"][0] == pytest.approx(data[0].times[-1] + 1 / rate, rel=1e-3)


def test_renewal_finds_waits_and_types_of_a_markov_renewal_process(tmp_path):
    data, new = drawn(gamma, ALTERNATING), drawn(gamma, ALTERNATING, seed=1)
    renewal, poisson = (EventPredictor(backbone=name).fit(data) for name in ("renewal", "poisson"))
    waits = np.concatenate([np.diff(one.times) for one in new])
    density = np.log(waits**3 * np.exp(-waits / 0.5) / (0.5**4 * 6)).mean()
    truth = density + 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    found = renewal.evaluate(new)
    assert truth - 0.05 < found["log_likelihood"] < truth + 0.03
    assert found["log_likelihood"] > poisson.evaluate(new)["log_likelihood"] + 0.5
    assert found["accuracy"] == pytest.approx(0.9, abs=0.03)
    ahead = renewal.sample(new[0], n=2000, seed=3)[0]
    assert np.diff(ahead.times).mean() == pytest.approx(2.0, rel=0.05)
    assert np.diff(ahead.times).std() == pytest.approx(1.0, rel=0.1)
    renewal.save(tmp_path)
    assert EventPredictor.load(tmp_path).evaluate(new) == found


def test_waits_of_zero_and_few_events_have_a_finite_likelihood():
    tied = [([0.0, 0.0, 0.0, 1.0], [0, 1, 0, 1]), ([0.0, 0.0, 0.0, 0.0, 0.0, 2.0], [0, 1, 0, 1, 1, 0])]
    for name in ("poisson", "renewal"):
        assert math.isfinite(EventPredictor(backbone=name).fit(tied, validation_data=tied).score(tied))

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError
from contiformer.data.synthetic import GENERATORS, Oscillators, oscillator_set
from contiformer.data.synthetic.oscillators import draw_oscillators
from tests.data.synthetic_checks import checksum


@given(st.floats(0.2, 5), st.floats(0, 0.95), st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 10))
def test_solution_satisfies_the_equation(omega, zeta, x, v, t):
    one = Oscillators(*(np.array(a) for a in (omega, zeta, x, v)))
    h = 1e-3
    # derivatives by five points
    stencil = one.at(t + h * np.arange(-2, 3))
    slope = np.array([1, -8, 0, 8, -1]) @ stencil / (12 * h)
    position, velocity = stencil[2]
    assert slope[0] == pytest.approx(velocity, abs=1e-8)
    assert slope[1] == pytest.approx(-2 * zeta * omega * velocity - omega**2 * position, abs=1e-7)
    np.testing.assert_allclose(one.at(np.array([0.0]))[0], [x, v], atol=1e-14)


def test_energy_is_lost_by_damping_only():
    data = draw_oscillators(20, 3, zeta=(0.0, 0.0))
    states = data.at(np.linspace(0, 30, 50))
    energy = states[..., 1] ** 2 + (data.omega[..., None] * states[..., 0]) ** 2
    np.testing.assert_allclose(energy, np.broadcast_to(energy[..., :1], energy.shape), rtol=1e-10)
    damped = draw_oscillators(20, 3, zeta=(0.1, 0.5))
    states = damped.at(np.linspace(0, 30, 50))
    energy = states[..., 1] ** 2 + (damped.omega[..., None] * states[..., 0]) ** 2
    assert (np.diff(energy) < 0).all()


def test_every_channel_has_its_own_times():
    data = oscillator_set(40, points=(3, 7))
    assert data.channels == data.schema.targets == ("position_0", "velocity_0", "position_1", "velocity_1")
    counts = np.array([s.observed.sum(0) for s in data])
    assert counts.min() == 3
    assert counts.max() == 7
    for s in data:
        assert (s.observed.sum(1) == 1).all()
        assert (np.diff(s.times) > 0).all()
        assert s.times[0] >= 0
        assert s.times[-1] <= 10


def test_observations_without_noise_and_targets_are_the_truth():
    data, truth = oscillator_set(10, count=3, noise=0.0, seed=5), draw_oscillators(10, 3, seed=5)
    for i, s in enumerate(data):
        exact = Oscillators(*(a[i] for a in vars(truth).values()))
        for channel in range(6):
            seen = s.observed[:, channel]
            expected = exact.at(s.times[seen])[channel // 2, :, channel % 2]
            np.testing.assert_allclose(s.values[seen, channel], expected, atol=1e-12)
            wanted = exact.at(s.target_times)[channel // 2, :, channel % 2]
            np.testing.assert_allclose(s.target_values[:, channel], wanted, atol=1e-12)
        assert s.target_times[[0, -1]].tolist() == [0, 10]


def test_noise_has_the_given_level_and_changes_nothing_else():
    exact, noisy = oscillator_set(300, noise=0.0, omega=(3, 3)), oscillator_set(300, noise=0.1, omega=(3, 3))
    errors = []
    for a, b in zip(exact, noisy, strict=True):
        assert np.array_equal(a.times, b.times)
        assert np.array_equal(a.target_values, b.target_values)
        errors.append(b.values - a.values)
    spread = np.nanstd(np.concatenate(errors), axis=0)
    np.testing.assert_allclose(spread, [0.1, 0.3, 0.1, 0.3], rtol=0.05)


def test_parameters_cover_their_ranges():
    drawn = draw_oscillators(2000, 1, omega=(2.0, 3.0), zeta=(0.1, 0.3))
    for values, low, high in ((drawn.omega, 2, 3), (drawn.zeta, 0.1, 0.3)):
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high >= values.max() > high - 0.02 * (high - low)
    assert drawn.position.std() == pytest.approx(1, rel=0.06)
    assert (drawn.velocity / drawn.omega).std() == pytest.approx(1, rel=0.06)


def test_seeds():
    assert oscillator_set(3, seed=1) == oscillator_set(3, seed=1)
    assert oscillator_set(3, seed=1) != oscillator_set(3, seed=2)
    assert len(oscillator_set(0)) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": -1},
        {"count": 0},
        {"points": (0, 3)},
        {"points": (4, 3)},
        {"span": 0.0},
        {"span": np.inf},
        {"targets": 1},
        {"noise": -0.1},
        {"zeta": (0.5, 1.0)},
        {"omega": (0.0, 1.0)},
        {"omega": (2.0, 1.0)},
        {"omega": (np.nan, 1.0)},
        {"seed": -1},
    ],
)
def test_impossible_requests(arguments):
    with pytest.raises(DataError):
        oscillator_set(**{"n": 2, **arguments})


@pytest.mark.parametrize(("seed", "expected"), [(0, "a563b12d1e4c5cdb"), (1, "379e054f498911bb")])
def test_golden(seed, expected):
    assert checksum(GENERATORS["oscillators"](seed=seed, n=20)) == expected

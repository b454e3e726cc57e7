from __future__ import annotations

import numpy as np
import pytest

from contiformer.data import DataError, Scaling
from contiformer.data.synthetic import GENERATORS, pendulum_set, pendulum_splits
from contiformer.data.synthetic.pendulum import draw, noise_factors, swing
from tests.data.synthetic_checks import checksum


def free(n=50, steps=200, step=0.01, pull=29.43, friction=0.0, push=0.0, seed=0, **rest):
    return swing(n, steps, step=step, pull=pull, friction=friction, push=push, rng=np.random.default_rng(seed), **rest)


def test_energy_of_a_free_pendulum():
    h = 0.001
    angles = free(steps=1500, step=h)
    velocity = (angles[:, :-4] - 8 * angles[:, 1:-3] + 8 * angles[:, 3:-1] - angles[:, 4:]) / (12 * h)
    energy = velocity**2 / 2 - 29.43 * np.cos(angles[:, 2:-2])
    np.testing.assert_allclose(energy, np.broadcast_to(-29.43 * np.cos(angles[:, :1]), energy.shape), atol=1e-6)


def test_period_of_a_free_pendulum():
    # from rest at angle θ the period is 2π / sqrt(pull) / M(1, cos(θ / 2)), with the arithmetic-geometric mean M
    angles = free(n=40, steps=4000, step=0.001)
    for path in angles[np.abs(angles[:, 0]) < 3.0]:
        a, b = 1.0, float(np.cos(path[0] / 2))
        for _ in range(8):
            a, b = (a + b) / 2, (a * b) ** 0.5
        first = int(np.flatnonzero(np.diff(np.sign(path)))[0])
        quarter = 0.001 * (first + path[first] / (path[first] - path[first + 1]))
        assert 4 * quarter == pytest.approx(2 * np.pi / np.sqrt(29.43) / a, rel=1e-5)


def test_steps_are_small_enough():
    np.testing.assert_allclose(free(friction=0.1), free(friction=0.1, substeps=40), atol=1e-7)


def test_friction_and_push():
    still, slowed, pushed = free(), free(friction=2.0), free(push=0.1)
    below = np.abs(still[:, 0]) < 2.8
    assert (np.abs(slowed[below, 100:]).max(1) < 0.9 * np.abs(still[below, 0])).all()
    assert np.array_equal(pushed[:, 0], still[:, 0])
    assert np.array_equal(pushed[:, 1], still[:, 1])
    assert not np.array_equal(pushed[:, 2], still[:, 2])
    # without gravity a velocity pushed k times has spread 0.1 sqrt(k)
    drifting = free(n=4000, steps=12, step=1.0, pull=0.0, push=0.1)
    velocity = np.diff(drifting, axis=1)
    np.testing.assert_allclose(velocity.std(0)[1:], 0.1 * np.sqrt(np.arange(1, 11)), rtol=0.05)


def test_start_is_anywhere_on_the_circle():
    start = free(n=5000, steps=1)[:, 0]
    counts = np.histogram(start, bins=10, range=(-np.pi, np.pi))[0]
    assert np.abs(counts - 500).max() < 4 * np.sqrt(500)


def test_picture_points_where_the_pendulum_does():
    angles = np.linspace(-np.pi, np.pi, 101)
    images = draw(angles, 24, length=0.43, width=1.5).reshape(-1, 24, 24)
    place = np.arange(24) - 11.5
    down, right = (images * place[:, None]).sum((1, 2)), (images * place).sum((1, 2))
    error = np.angle(np.exp(1j * (np.arctan2(right, down) - angles)))
    assert np.abs(error).max() < 0.03
    assert images.min() == 0
    assert 0.9 < images.max() <= 1
    # covered area of a rod with round ends, drawn without jumps
    np.testing.assert_allclose(images.sum((1, 2)), 0.43 * 24 * 1.5 + np.pi * 0.75**2, rtol=0.06)
    assert images[50, 12:20, 11:13].min() == pytest.approx(0.75)
    assert images[50, :10].max() == 0


def test_noise_factors():
    raw = noise_factors(2000, 100, clear=5, rng=np.random.default_rng(0))
    assert raw.shape == (2000, 100)
    assert (raw[:, :5] == 1).all()
    assert raw.min() == 0
    assert raw.max() == 1
    # the factor moves by at most 0.2, and is stretched by 1 / (b - a), at most 2
    assert 0.3 < np.abs(np.diff(raw[:, 5:])).max() <= 0.4
    late = raw[:, 50:]
    # the walk is uniform in the long run, up to what sticks to its ends: about an eighth and more at each of them
    assert 0.1 < (late == 0).mean() < 0.3
    assert abs((late == 0).mean() - (late == 1).mean()) < 0.03
    follows = np.corrcoef(raw[:, 50], raw[:, 51])[0, 1]
    assert follows > 0.9


def test_series():
    data = pendulum_set(30)
    assert data.schema.targets == ("sine", "cosine")
    assert len(data.channels) == 576
    for s in data:
        assert s.values.shape == (50, 576)
        assert s.values.dtype == np.float32
        assert s.values.min() >= 0
        assert s.values.max() <= 1
        assert np.array_equal(s.times, s.target_times)
        assert (np.diff(s.times) > 0).all()
        assert np.array_equal(s.times, s.times.round())
        assert s.times[0] >= 0
        assert s.times[-1] <= 99
        np.testing.assert_allclose((s.target_values**2).sum(1), 1, rtol=1e-6)
    assert not np.array_equal(data[0].times, data[1].times)
    assert len({tuple(np.diff(s.times)) for s in data}) == 30


def test_clean_pictures_show_the_targets():
    place = np.arange(24) - 11.5
    for s in pendulum_set(5, correlated=False):
        images = s.values.reshape(-1, 24, 24)
        down, right = (images * place[:, None]).sum((1, 2)), (images * place).sum((1, 2))
        np.testing.assert_allclose(
            np.stack([right, down], 1) / np.hypot(right, down)[:, None], s.target_values, atol=0.03
        )


def test_noise_mixes_the_picture_with_uniform_noise():
    clean, noisy = pendulum_set(40, correlated=False), pendulum_set(40)
    lost = 0
    for a, b in zip(clean, noisy, strict=True):
        assert np.array_equal(a.target_values, b.target_values)
        assert np.array_equal(a.times, b.times)
        assert np.array_equal(a.values[a.times < 5], b.values[b.times < 5])
        dark = a.values == 0
        share = np.array([row[m].max() for row, m in zip(b.values, dark, strict=True)])
        # in dark pixels there is (1 - f) U(0, 1), of which the largest of some 500 is close to 1 - f
        expected = share[:, None] * 0.5
        means = np.array([row[m].mean() for row, m in zip(b.values, dark, strict=True)])
        np.testing.assert_allclose(means, expected[:, 0], atol=0.06)
        lost += int((share > 0.98).sum())
    assert lost > 100


def test_more_possible_times():
    s = pendulum_set(3, per_unit=10, frames=70)[0]
    assert len(s) == 70
    assert not np.array_equal(s.times, s.times.round())
    np.testing.assert_allclose(s.times * 10, (s.times * 10).round(), atol=1e-9)
    assert s.times[-1] < 100


def test_splits_are_independent_and_have_their_sizes():
    train, validation, test = pendulum_splits((4, 3, 2))
    assert [len(part) for part in (train, validation, test)] == [4, 3, 2]
    assert train[0] != validation[0]
    assert pendulum_splits((1, 3, 2))[1] == validation
    assert pendulum_splits((4,), seed=1)[0][0] != train[0]
    Scaling.fit(train).apply(test)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": -1},
        {"frames": 101},
        {"frames": 0},
        {"per_unit": 0},
        {"pixels": 0},
        {"seconds": 0.0},
        {"pull": np.nan},
        {"push": -1.0},
        {"clear": -1},
        {"seed": -1},
        {"seed": 0.5},
    ],
)
def test_impossible_requests(arguments):
    with pytest.raises(DataError):
        pendulum_set(**{"n": 1, **arguments})


@pytest.mark.parametrize(("seed", "expected"), [(0, "af28c6e77a987c2c"), (1, "601304d80763087f")])
def test_golden(seed, expected):
    assert checksum(GENERATORS["pendulum"](seed=seed, n=6)) == expected

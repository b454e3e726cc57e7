from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from contiformer.data import DataError, EventSet, SeriesSet
from contiformer.data.synthetic import GENERATORS, archimedean, generate_spirals, hyperbolic, spiral_set
from contiformer.data.synthetic.spirals import END_ANGLE, LAST_ANGLE


def test_first_type_at_hand_computed_points():
    angle = torch.tensor([0.0, math.pi / 2, math.pi, 4 * math.pi], dtype=torch.float64)
    a, b = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    # r = 0.1 + 0.3 t, in the directions east, north, west, east
    expected = [[0.1, 0.0], [0.0, 0.1 + 0.15 * math.pi], [-0.1 - 0.3 * math.pi, 0.0], [0.1 + 1.2 * math.pi, 0.0]]
    assert torch.allclose(archimedean(angle, a, b), torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_second_type_at_hand_computed_points():
    end = 6 * math.pi + 1
    angle = torch.tensor([end - 2 * math.pi, end - math.pi / 2, end - 1], dtype=torch.float64)
    a, b = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    # r = 0.1 + 15 / (e - t)
    expected = [
        [0.1 + 7.5 / math.pi, 0.0],
        [0.0, 0.1 + 30 / math.pi],
        [15.1 * math.cos(1), 15.1 * math.sin(1)],
    ]
    assert torch.allclose(hyperbolic(angle, a, b), torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_shapes_and_times():
    spirals = generate_spirals(7, points=20)
    assert len(spirals) == 7
    assert spirals.times.shape == (7, 150)
    assert spirals.clean.shape == (7, 150, 2)
    assert spirals.observed_times.shape == (7, 20)
    assert spirals.observed_values.shape == (7, 20, 2)
    assert spirals.times[0, 0] == 0
    assert spirals.times[0, -1] == 1
    assert bool((spirals.observed_times.diff(dim=1) > 0).all())
    assert not torch.equal(spirals.observed_times[0], spirals.observed_times[1])


def test_the_first_half_is_observed():
    spirals = generate_spirals(3, points=75)
    assert torch.equal(spirals.observed_times, spirals.times[:, :75])


def test_curves_follow_the_formulas_of_their_type():
    spirals = generate_spirals(50)
    angle, a, b = LAST_ANGLE * spirals.times, spirals.a[:, None], spirals.b[:, None]
    back = spirals.clockwise
    assert torch.equal(spirals.clean[back], hyperbolic(angle, a, b, END_ANGLE)[back])
    assert torch.equal(spirals.clean[~back], archimedean(angle, a, b)[~back])


def test_both_directions_turn_as_they_say():
    spirals = generate_spirals(400)
    x, y = spirals.clean.unbind(-1)
    # twice the signed area swept from one time to the next
    swept = (x[:, :-1] * y[:, 1:] - x[:, 1:] * y[:, :-1])[:, 20:]
    assert bool((swept[spirals.clockwise] < 0).all())
    assert bool((swept[~spirals.clockwise] > 0).all())
    assert 0.4 < spirals.clockwise.float().mean() < 0.6


def test_parameters_have_the_given_spread():
    spirals = generate_spirals(4000, alpha=0.05)
    assert spirals.a.mean().abs() < 0.004
    assert (spirals.b.mean() - 0.3).abs() < 0.004
    assert spirals.a.std() == pytest.approx(0.05, rel=0.05)
    assert spirals.b.std() == pytest.approx(0.05, rel=0.05)


def test_noise_has_the_given_level_and_leaves_the_truth_alone():
    exact, noisy = generate_spirals(200, noise=0.0), generate_spirals(200, noise=0.25)
    assert torch.equal(exact.clean, noisy.clean)
    assert torch.equal(exact.observed_times, noisy.observed_times)
    index = torch.searchsorted(exact.times.contiguous(), exact.observed_times)
    assert torch.equal(exact.observed_values, exact.clean.gather(1, index[..., None].expand(-1, -1, 2)))
    error = noisy.observed_values - exact.observed_values
    assert error.std() == pytest.approx(0.25, rel=0.03)
    assert error.mean().abs() < 0.01


def test_seed_decides_everything():
    one, same, other = generate_spirals(5, seed=1), generate_spirals(5, seed=1), generate_spirals(5, seed=2)
    assert torch.equal(one.observed_values, same.observed_values)
    assert torch.equal(one.observed_times, same.observed_times)
    assert not torch.equal(one.clean, other.clean)
    torch.manual_seed(3)
    assert torch.equal(generate_spirals(5, seed=1).observed_values, one.observed_values)


def test_fewer_points_are_a_subset_with_the_same_noise():
    few, many = generate_spirals(4, points=10), generate_spirals(4, points=40)
    for i in range(4):
        kept = torch.isin(many.observed_times[i], few.observed_times[i])
        assert torch.equal(many.observed_values[i][kept], few.observed_values[i])


def test_selection():
    spirals = generate_spirals(6)
    chosen = spirals[torch.tensor([4, 1])]
    assert len(chosen) == 2
    assert torch.equal(chosen.observed_values[1], spirals.observed_values[1])
    assert torch.equal(spirals[:2].b, spirals.b[:2])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n": 0}, "n must"),
        ({"n": 1, "points": 76}, "points"),
        ({"n": 1, "points": 0}, "points"),
        ({"n": 1, "noise": -1.0}, "noise"),
        ({"n": 1, "alpha": -1.0}, "alpha"),
        ({"n": 1, "end": LAST_ANGLE}, "end"),
    ],
)
def test_impossible_requests_are_refused(arguments, name):
    with pytest.raises(ValueError, match=name):
        generate_spirals(**arguments)


def test_set_in_the_words_of_the_paper():
    data = spiral_set()
    spirals = generate_spirals(300, points=30, noise=0.1)
    assert len(data) == 300
    assert data.channels == data.schema.targets == ("x", "y")
    assert data.classes == ("counter-clockwise", "clockwise")
    for i in (0, 1, 299):
        assert data[i].values.shape == (30, 2)
        assert np.array_equal(data[i].values, spirals.observed_values[i].numpy())
        assert np.array_equal(data[i].times, spirals.observed_times[i].double().numpy())
        assert np.array_equal(data[i].target_values, spirals.clean[i].numpy())
        assert data[i].target_times.shape == (150,)
        assert (data[i].label == "clockwise") == bool(spirals.clockwise[i])


def test_set_as_the_authors_code_has_it():
    data = spiral_set(preset="authors' code", seed=3)
    targets = np.stack([s.target_values for s in data])
    np.testing.assert_allclose(targets.min((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(targets.max((0, 1)), 1, atol=1e-6)
    assert all(s.values.shape == (50, 2) and np.array_equal(s.times, data[0].times) for s in data)
    # the noise of 0.05 is scaled with the curves
    low, high = (
        f(generate_spirals(300, apart=10.0, backwards=True, seed=3).clean.numpy(), axis=(0, 1))
        for f in (np.min, np.max)
    )
    at = np.searchsorted(data[0].target_times, data[0].times)
    error = (np.stack([s.values for s in data]) - targets[:, at]) * (high - low)
    assert error.std() == pytest.approx(0.05, rel=0.03)


def test_options_win_over_the_preset():
    data = spiral_set(5, preset="authors' code", points=20, unit_box=False, alpha=0.2)
    assert data[0].values.shape == (20, 2)
    assert max(np.abs(s.target_values).max() for s in data) > 2


def test_curves_apart_and_backwards():
    plain, moved = generate_spirals(50), generate_spirals(50, apart=10.0, backwards=True)
    back = plain.clockwise
    shift = torch.tensor([5.0, 0.0])
    assert torch.allclose(moved.clean[~back], plain.clean[~back] + shift, atol=1e-6)
    assert torch.allclose(moved.clean[back], plain.clean[back].flip(1) - shift, atol=1e-6)
    assert torch.equal(moved.observed_times, plain.observed_times)


def test_common_times_are_those_of_the_first():
    one, own = generate_spirals(4, common_times=True), generate_spirals(4)
    assert torch.equal(one.observed_times, own.observed_times[:1].expand(4, -1))
    assert torch.equal(one.clean, own.clean)


def test_impossible_sets_are_refused():
    with pytest.raises(DataError, match="did you mean 'paper text'"):
        spiral_set(3, preset="paper test")
    with pytest.raises(DataError, match="points must be"):
        spiral_set(3, points=76)
    with pytest.raises(DataError, match="did you mean 'points'"):
        spiral_set(3, point=20)


def test_golden():
    # torch draws and computes in float32, whose last bits differ between processors: values instead of a checksum
    data = spiral_set(seed=0)
    positions = [np.searchsorted(s.target_times, s.times).tolist() for s in data]
    drawn = json.dumps([positions, data.labels])
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "8e8b00f2a783d39b"
    np.testing.assert_allclose(data[0].values[:2], [[0.05952, 0.0506], [0.16667, -0.02466]], atol=1e-4)
    np.testing.assert_allclose(data[299].target_values[-1], [8.02816, 12.50311], atol=1e-4)


def test_generators_import_nothing_before_they_are_called():
    code = (
        "import sys, contiformer.data.synthetic as s; names = sorted(s.GENERATORS); "
        "assert 'numpy' not in sys.modules; "
        "s.GENERATORS['hawkes'](seed=0, n=1); assert 'torch' not in sys.modules; print(names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "spirals-authors" in done.stdout


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_generators_give_sets_that_depend_on_the_seed(name):
    one, same, other = (GENERATORS[name](seed=seed, n=2) for seed in (1, 1, 2))
    assert isinstance(one, SeriesSet | EventSet)
    assert one == same
    assert one != other
    assert one.summary().items == 2

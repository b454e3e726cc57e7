import numpy as np
import pytest
import torch

from contiformer.data import Scaling, Series, SeriesSet, collate
from contiformer.tasks.baselines.ridge import PENALTIES, fit_ridge
from contiformer.tasks.baselines.rocket import KERNELS, TAPS, Rocket, dilations, shared_window


@pytest.mark.parametrize(("n", "features"), [(20, 5), (9, 30)])
def test_left_out_predictions_are_those_of_ridges_without_the_row(n, features):
    random = np.random.default_rng(0)
    x, y, w = random.normal(size=(n, features)), random.normal(size=(n, 2)), random.random(n) + 0.5
    slopes, intercept, left_out = fit_ridge(x, y, w)
    root, share = np.sqrt(w / w.mean())[:, None], (w / w.sum())[:, None]
    rows = root * (x - (share * x).sum(0))
    unit = (rows**2).sum() / n

    def solved(penalty, keep):
        """The ridge of some rows with an intercept, by the normal equations of its own columns."""
        ones = np.hstack([x[keep], np.ones((keep.sum(), 1))])
        weight = (w / w.mean())[keep][:, None]
        cost = penalty * np.diag([1.0] * features + [0.0])
        return np.linalg.solve(ones.T @ (weight * ones) + cost, ones.T @ (weight * y[keep]))

    every = np.full(n, True)
    found = [cost for cost in unit * PENALTIES if np.allclose(solved(cost, every)[:-1], slopes)]
    assert len(found) == 1
    whole = solved(found[0], every)
    np.testing.assert_allclose(whole[-1], intercept, atol=1e-8)
    for row in range(n):
        without = solved(found[0], np.arange(n) != row)
        np.testing.assert_allclose(left_out[row], np.append(x[row], 1.0) @ without, rtol=1e-6, atol=1e-8)


def a_rocket(points=40, channels=2, **more):
    torch.manual_seed(0)
    rocket = Rocket(channels=channels, classes=2, points=points, thresholds=3, **more)
    rocket.channel_masks.copy_((torch.rand_like(rocket.channel_masks) < 0.6).float())
    rocket.biases.normal_()
    return rocket


def test_features_are_shares_of_the_time_above_thresholds():
    rocket = a_rocket()
    times = np.array([0.0, 0.1, 0.35, 0.8, 1.0])
    values = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    found = rocket.features(collate([Series(times, values)]))[0, : rocket.biases.numel()].numpy()
    path = np.stack([np.interp(np.linspace(0, 1, 40), times, column) for column in values.T])
    wanted = []
    for kind, shown in enumerate((path, np.diff(path))):
        for k, dilation in enumerate(dilations(40)):
            reach, outs = 4 * dilation, []
            for m, chosen in enumerate(KERNELS):
                tap = np.where(np.isin(np.arange(TAPS), chosen), 2.0, -1.0)
                mixed = np.pad(rocket.channel_masks[kind, k, m].numpy() @ shown, reach)
                out = sum(w * mixed[j * dilation : j * dilation + shown.shape[1]] for j, w in enumerate(tap))
                outs.append(out if m % 2 == 0 else out[reach : len(out) - reach])
            for parity in (0, 1):
                for b in range(3):
                    biases = rocket.biases[kind, k, :, b].numpy()
                    wanted += [(outs[m] > biases[m]).mean() for m in range(parity, len(KERNELS), 2)]
    # a convolution in float32 may fall on the other side of a threshold at a step
    assert (np.abs(found - wanted) < 0.06).all()
    assert (np.abs(found - wanted) < 1e-6).mean() > 0.99


def test_features_do_not_depend_on_where_the_observations_of_a_line_are():
    rocket = a_rocket(points=60)
    few = Series.of([0.0, 1.0, 2.0], [[0.0, 1.0], [2.0, -1.0], [1.0, 0.0]])
    times = np.sort(np.append(np.random.default_rng(1).uniform(0, 2, 30), [0.0, 1.0, 2.0]))
    many = Series.of(times, np.stack([np.interp(times, few.times, column) for column in few.values.T], 1))
    alike = [rocket.features(collate([one]))[:, : rocket.biases.numel()] for one in (few, many)]
    assert (alike[0] - alike[1]).abs().mean() < 2e-3


def test_a_series_that_begins_late_in_a_shared_window_keeps_its_place():
    def told(shift):
        return Series.of(np.array([0.0, 1.0, 2.0, 3.0]) + shift, [[0.0, 0.0], [1.0, -1.0], [0.0, 1.0], [2.0, 0.0]])

    data = SeriesSet([told(shift) for shift in (0.0, 0.5, 1.0)])
    assert shared_window(data) == 4.0
    assert Rocket.origin(data, "first") == "global"
    assert Rocket.describe(data, Scaling.fit(data, origin="global", unit=2.0))["window"] == 2.0
    rocket = a_rocket(window=4.0)
    path = rocket._paths(collate([told(0.5)]))[0, 0]
    expected = np.interp(np.linspace(0, 4, rocket.points), [0.5, 1.5, 2.5, 3.5], [0.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(path, expected, atol=1e-6)


def test_series_with_different_windows_are_read_over_their_own_span():
    data = SeriesSet([Series(np.array([0.0, 1.0]) + 10 * n, np.zeros((2, 1))) for n in range(3)])
    assert shared_window(data) is None
    assert Rocket.origin(data, "first") == "first"
    assert Rocket.describe(data, Scaling.fit(data))["window"] is None


def test_missing_channels_are_read_from_their_own_observations():
    nan = float("nan")
    rocket = a_rocket()
    whole = Series.of([0.0, 1.0, 2.0], [[0.0, 0.0], [1.0, 5.0], [2.0, 1.0]])
    gappy = Series.of([0.0, 1.0, 2.0], [[0.0, 0.0], [nan, 5.0], [2.0, 1.0]])
    alike = [rocket.features(collate([one]))[:, : rocket.biases.numel()] for one in (whole, gappy)]
    torch.testing.assert_close(*alike)


def test_steps_grow_with_the_series_and_features_stay_bounded():
    def options(points, count=10):
        data = SeriesSet([Series(np.arange(float(points)), np.zeros((points, 1)))] * count)
        return Rocket.describe(data, Scaling.fit(data))

    assert options(10)["points"] == 64
    assert options(100)["points"] == 200
    assert options(5000)["points"] == 384
    for points, count, most in ((10, 10, 12_000), (400, 10, 12_000), (40, 4000, 4_000)):
        found = options(points, count)
        assert 2 * len(KERNELS) * len(dilations(found["points"])) * found["thresholds"] < most

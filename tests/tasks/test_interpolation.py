"""Interpolation task: hidden observations, metrics and calibration."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, Series, SeriesSet, collate
from contiformer.tasks import AtTimes, Interpolation
from contiformer.tasks.interpolation import hide_observations
from tests.tasks.problems import parts, some_series, some_set


@given(st.floats(0.05, 0.95), st.integers(0, 1000))
def test_hidden_and_visible_values_partition_the_observations(share, seed):
    data = some_set(n=8, seed=seed)
    hidden = hide_observations(data, share, seed)
    for before, after in zip(data, hidden, strict=True):
        wanted = np.full(before.values.shape, np.nan)
        wanted[np.isin(before.times, after.target_times)] = after.target_values
        assert not (~np.isnan(wanted) & after.observed).any()
        np.testing.assert_array_equal(np.where(np.isnan(wanted), after.values, wanted), before.values)
        assert (~np.isnan(after.target_values)).any(1).all()
    assert hidden == hide_observations(data, share, seed)
    assert hidden.schema.targets == data.channels


def test_share_of_hidden_observations():
    data = SeriesSet([Series.of(np.arange(50.0), np.zeros((50, 2)), id=n) for n in range(200)])
    hidden = hide_observations(data, 0.3, 0)
    gone = np.mean([np.isnan(one.values).mean() for one in hidden])
    assert gone == pytest.approx(0.3, abs=0.04)
    assert hide_observations(data, 0.3, 1) != hidden


def test_loss_counts_the_hidden_observations_only():
    task = Interpolation(*parts(), outputs=2, from_observed=True, law="gaussian", hide=0.5)
    batch = collate(some_series(n=64))
    hidden = task._hidden(batch)
    assert not (hidden & ~batch.observed).any()
    assert 0.2 < hidden.sum() / batch.observed.sum() < 0.6
    seen = []
    task.inputs.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    torch.manual_seed(0)
    total, weight = task.loss_terms(batch)
    assert torch.isfinite(total)
    assert weight + seen[0].observed.sum() == batch.observed.sum()
    assert not seen[0].values[~seen[0].observed].any()


def test_untrained_answer_is_linear_interpolation():
    task = Interpolation(*parts(), outputs=2, from_observed=True).eval()
    series = Series.of([0.0, 1.0, 2.0], [[0.0, 5.0], [np.nan, 5.0], [4.0, 5.0]])
    said = task(collate([series]), torch.tensor([[0.5, 1.0, 3.0, -1.0]], dtype=torch.float64))
    torch.testing.assert_close(said[0, :, :, 0], torch.tensor([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0], [0.0, 5.0]]))


def test_metrics_do_not_depend_on_the_batches():
    task = Interpolation(*parts(), outputs=2, from_observed=True, law="gaussian").eval()
    data = hide_observations(some_set(n=9), 0.3, 0)
    whole = task.evaluate([collate(list(data))])
    one_by_one = task.evaluate([collate([series]) for series in data])
    for name, value in whole.items():
        assert one_by_one[name] == pytest.approx(value, rel=1e-5)
    assert whole["nll"] == whole["score"]


def test_calibration_reaches_90_percent_coverage():
    task = Interpolation(*parts(), outputs=2, from_observed=True, law="gaussian").eval()
    data = hide_observations(some_set(n=300), 0.3, 0)
    batches = [collate(list(data))]
    before = task.evaluate(batches)
    task.calibrate(batches)
    after = task.evaluate(batches)
    assert after["nll"] < before["nll"]
    assert after["mse"] == before["mse"]
    assert after["coverage90"] == pytest.approx(0.9, abs=0.001)
    factor = task.head.std_factor.clone()
    task.calibrate(batches)
    torch.testing.assert_close(task.head.std_factor, factor)


def test_invalid_options_are_refused():
    with pytest.raises(ValueError, match="hide must be between 0 and 1"):
        Interpolation(*parts(), outputs=2, hide=1.0)
    with pytest.raises(ValueError, match="warp must be 0"):
        AtTimes(*parts(), outputs=2, augmentation={"warp": 0.1})
    with pytest.raises(DataError, match="the series have no target"):
        AtTimes(*parts(), outputs=2).judge(collate(some_series()))


def test_at_least_one_observation_is_hidden():
    data = SeriesSet([Series.of(range(2), range(2)) for _ in range(50)])
    for one in hide_observations(data, 0.01, 0):
        assert len(one.target_times) >= 1

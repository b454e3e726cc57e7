"""Training augmentation: subsampling, time warping and noise."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import Series, collate
from contiformer.tasks import Augmentation
from contiformer.tasks.augmentation import thinned, warped
from tests.tasks.problems import some_series


@given(st.floats(0.01, 1), st.none() | st.integers(1, 5), st.integers(0, 1000))
def test_subsampling_keeps_a_subset_of_the_points(keep, most, seed):
    series = some_series(seed=seed % 7)
    batch = collate(series)
    torch.manual_seed(seed)
    seen = thinned(batch, keep, most)
    for row, one in enumerate(series):
        count = int(seen.lengths[row])
        assert 1 <= count <= len(one)
        assert most is None or count <= most
        places = [one.times.tolist().index(t) for t in seen.times[row, :count].tolist()]
        assert places == sorted(set(places))
        torch.testing.assert_close(seen.values[row, :count], batch.values[row, places])
        assert torch.equal(seen.observed[row, :count], batch.observed[row, places])
    assert not seen.observed[~seen.mask].any()
    assert not seen.values[~seen.mask].any()
    assert (seen.times.diff(dim=1) >= 0).all()


def test_subsampling_is_uniform():
    batch = collate([Series.of(range(20), range(20))] * 4000)
    seen = thinned(batch, 0.5)
    length = int(batch.lengths[0])
    shares = torch.stack([(seen.times == t).any(1).float().mean() for t in batch.times[0, :length]])
    torch.testing.assert_close(shares, torch.full((length,), round(length / 2) / length), atol=0.04, rtol=0)


def test_augmentation_without_effect_returns_the_batch():
    batch = collate(some_series())
    assert Augmentation()(batch) is batch
    assert thinned(batch, 1.0, most=9) is batch
    empty = collate([some_series(1)[0].points(slice(0, 0))])
    assert Augmentation(keep=0.5, warp=0.3, noise=1.0)(empty).times.shape == (1, 0)


@given(st.floats(0.01, 3), st.integers(0, 1000))
def test_a_warp_keeps_the_order_of_times(size, seed):
    torch.manual_seed(seed)
    batch = collate(some_series())
    moved = warped(batch.times, size)
    assert (moved.diff(dim=1) >= 0).all()
    torch.testing.assert_close(moved[:, 0], batch.times[:, 0])
    assert torch.isfinite(moved).all()


def test_noise_is_added_to_observations_only():
    batch = collate(some_series())
    noisy = Augmentation(noise=0.5)(batch)
    assert not noisy.values[~noisy.observed].any()
    assert (noisy.values - batch.values)[batch.observed].std() == pytest.approx(0.5, rel=0.4)


@pytest.mark.parametrize("options", [{"keep": 0.0}, {"keep": 1.1}, {"most": 0}, {"warp": -1.0}, {"noise": -0.1}])
def test_invalid_augmentation_options_are_refused(options):
    with pytest.raises(ValueError, match="keep must be above 0"):
        Augmentation(**options)

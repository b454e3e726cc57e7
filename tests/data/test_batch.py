import numpy as np
import pytest
import torch

from contiformer.data import DataError, EventSequence, Series, collate, collate_events


def some():
    return [
        Series.of([0, 1, 2], [[1, np.nan], [2, 5], [3, 6]], static=[1, np.nan], label="b", id="p"),
        Series.of([7], [[9, 9]], static=[2, 3], label="a", id="q"),
        Series.of([], np.zeros((0, 2)), static=[0, 0], label="a", id="r"),
    ]


def test_padding_is_marked_and_nothing_is_moved():
    batch = collate(some(), ["a", "b"])
    assert batch.ids == ("p", "q", "r")
    assert batch.lengths.tolist() == [3, 1, 0]
    assert batch.times.tolist() == [[0, 1, 2], [7, 7, 7], [0, 0, 0]]
    assert batch.times.dtype == torch.float64
    assert batch.observed[0].tolist() == [[True, False], [True, True], [True, True]]
    assert not batch.observed[1, 1:].any()
    assert batch.values[~batch.observed].eq(0).all()
    assert batch.mask.sum(1).tolist() == [3, 1, 0]
    assert batch.label.tolist() == [1, 0, 0]
    assert batch.static_observed.tolist() == [[True, False], [True, True], [True, True]]


def test_slices_moves_and_targets():
    series = [Series.of([0, 1], [1, 2], target_times=[3, 4, 5], target_values=[[1], [np.nan], [3]], label=0.5)] * 3
    batch = collate(series)
    assert len(batch[1:]) == 2
    assert batch[1:].ids == (None, None)
    assert batch.to("cpu").target_observed[0].ravel().tolist() == [True, False, True]
    assert batch.label.dtype == torch.float64


def test_mixed_batches_are_refused():
    pair = [Series.of([0], [1], static=[1]), Series.of([0], [1])]
    for some_series in (pair, pair[::-1], [pair[0], Series.of([0], [1], static=[1, 2])]):
        with pytest.raises(DataError, match="static"):
            collate(some_series)
    with pytest.raises(DataError, match="target"):
        collate([Series.of([0], [1]), Series.of([0], [1], target_values=[1])])
    for large in (Series.of([0], [1e300]), Series.of([0], [1], static=[1e300])):
        with pytest.raises(DataError, match="float32"):
            collate([large])
    with pytest.raises(DataError, match="label"):
        collate([Series.of([0], [1], label=1), Series.of([0], [1])])
    with pytest.raises(DataError, match="channels"):
        collate([Series.of([0], [[1]]), Series.of([0], [[1, 2]])])
    with pytest.raises(DataError, match="none of the classes"):
        collate(some(), ["a"])
    with pytest.raises(DataError, match="no series"):
        collate([])


def test_events_are_padded():
    batch = collate_events(
        [EventSequence.of([1, 2], [1, 0], features=[[1], [np.nan]]), EventSequence.of([5], [1], features=[[2]])]
    )
    assert batch.times.tolist() == [[1, 2], [5, 5]]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.lengths.tolist() == [2, 1]
    assert batch.features_observed[..., 0].tolist() == [[True, False], [True, False]]
    with pytest.raises(DataError):
        collate_events([])

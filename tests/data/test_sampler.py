import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import BucketSampler, DataError


@given(st.integers(0, 200), st.integers(1, 17), st.integers(0, 3), st.booleans(), st.integers(1, 4))
def test_every_item_once_in_an_epoch(count, size, seed, shuffle, blocks):
    lengths = np.random.default_rng(seed).integers(1, 50, count)
    sampler = BucketSampler(
        lengths, size, seed=seed, shuffle=shuffle, blocks=np.arange(count) * blocks // max(1, count)
    )
    batches = list(sampler)
    assert sorted(i for batch in batches for i in batch) == list(range(count))
    assert max(map(len, batches), default=0) <= size


def test_length_is_the_number_of_batches():
    for shuffle in (True, False):
        sampler = BucketSampler([1] * 10, 3, shuffle=shuffle, blocks=[0] * 5 + [1] * 5)
        assert len(list(sampler)) == len(sampler)


def test_blocks_are_visited_one_after_another():
    blocks = np.repeat([0, 1, 2], 10)
    visited = [blocks[batch[0]] for batch in BucketSampler(np.ones(30), 4, blocks=blocks)]
    assert len({*visited}) == 3
    assert np.count_nonzero(np.diff(visited)) == 2


def test_padding_is_a_fraction_of_that_of_a_random_order():
    lengths = np.random.default_rng(0).integers(1, 200, 3000)

    def padding(batches):
        return sum(max(lengths[b]) * len(b) - lengths[b].sum() for b in map(np.array, batches))

    shuffled = np.array_split(np.random.default_rng(1).permutation(3000), 94)
    assert padding(BucketSampler(lengths, 32)) < 0.1 * padding(shuffled)


def test_epochs_differ_and_repeat_with_the_seed():
    sampler, again = BucketSampler(range(1, 101), 7, seed=5), BucketSampler(range(1, 101), 7, seed=5)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    again.set_epoch(1)
    assert list(again) == list(sampler)
    again.set_epoch(1, start=3)
    assert list(again) == list(sampler)[3:]
    assert len(again) == len(sampler) - 3


def test_wrong_arguments_are_refused():
    for options in ({"batch_size": 0}, {"batch_size": 1, "seed": -1}, {"batch_size": 1, "blocks": [0, 1]}):
        with pytest.raises(DataError):
            BucketSampler([1], **options)

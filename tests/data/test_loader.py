import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from contiformer.data import DataError, EventSequence, EventSet, Loader, Series, SeriesSet, collate, scan_parquet

OPTIONS = {"id": "who", "time": "t"}


def numbered(count=40):
    return SeriesSet(
        [Series.of(np.arange(1 + n % 5), np.zeros((1 + n % 5, 1)), id=n, label=n % 2) for n in range(count)]
    )


def ids(batches):
    return [batch.ids for batch in batches]


@given(st.integers(0, 9), st.integers(0, 2))
def test_a_saved_state_goes_on_with_the_next_batch(stop, epoch):
    whole = Loader(numbered(), 4, seed=2)
    expected = [ids(whole) for _ in range(epoch + 2)]
    cut = Loader(numbered(), 4, seed=2)
    for _ in range(epoch):
        list(cut)
    walk = iter(cut)
    seen = [next(walk).ids for _ in range(stop)]
    resumed = Loader(numbered(), 4, seed=2)
    resumed.load_state_dict(cut.state_dict())
    assert seen + ids(resumed) == expected[epoch]
    assert ids(resumed) == expected[epoch + 1]


def test_what_workers_read_ahead_is_not_lost():
    expected = ids(Loader(numbered(), 4, seed=1))
    cut = Loader(numbered(), 4, seed=1, num_workers=2)
    walk = iter(cut)
    seen = [next(walk).ids for _ in range(3)]
    state = cut.state_dict()
    assert state["position"] == 3
    resumed = Loader(numbered(), 4, seed=1)
    resumed.load_state_dict(state)
    assert seen + ids(resumed) == expected


@pytest.mark.parametrize("change", [{"batch_size": 3}, {"seed": 9}, {"shuffle": False}])
def test_a_state_of_another_order_is_refused(change):
    state = Loader(numbered(), 4).state_dict()
    with pytest.raises(DataError, match="saved order"):
        Loader(numbered(), **{"batch_size": 4, **change}).load_state_dict(state)
    with pytest.raises(DataError, match="items"):
        Loader(numbered(7), 4).load_state_dict(state)


def test_labels_and_events():
    data = SeriesSet([Series.of([0], [1], label=word) for word in "ba"], classes=["a", "b"])
    assert next(iter(Loader(data, 2, shuffle=False))).label.tolist() == [1, 0]
    events = EventSet([EventSequence.of([0.5], [1])])
    assert next(iter(Loader(events, 2))).types.tolist() == [[1]]


@pytest.fixture
def file(tmp_path):
    who = np.repeat(np.arange(12), 3)
    pl.DataFrame({"who": who, "t": np.tile([0.0, 1.0, 2.0], 12), "x": who * 1.0}).write_parquet(tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_workers_read_lazy_sets(file):
    lazy = scan_parquet(file, block_points=7, **OPTIONS)
    assert sorted(i for batch in Loader(lazy, 4, num_workers=1) for i in batch.ids) == list(range(12))


def test_a_forked_worker_says_so_instead_of_waiting_for_ever(file):
    lazy = scan_parquet(file, block_points=7, **OPTIONS)
    loader = DataLoader(lazy, batch_size=2, collate_fn=collate, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(DataError, match="spawn"):
        list(loader)

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, EventSequence, EventSet, Series, SeriesSet
from contiformer.data.series_set import Schema


def labelled(count=20, classes=4):
    return SeriesSet(
        [Series.of([0, 1 + n], [[n, np.nan]] * 2, label=f"c{n % classes}", id=f"s{n}") for n in range(count)],
        channels=["a", "b"],
        classes=[f"c{k}" for k in range(classes)],
    )


@given(st.integers(2, 60), st.integers(0, 5), st.booleans())
def test_splits_are_partitions_with_the_right_shares(count, seed, stratify):
    data = labelled(count, 3)
    try:
        parts = data.split(0.7, 0.3, seed=seed, stratify=stratify)
    except DataError:
        assert round(0.7 * count) in (0, count)
        return
    assert sorted(name for part in parts for name in part.ids) == sorted(data.ids)
    assert len(parts[0]) == round(0.7 * count)


def test_stratified_splits_keep_the_shares_of_labels():
    train, test = labelled(100, 4).split(0.8, 0.2, stratify=True)
    assert [train.labels.count(f"c{k}") for k in range(4)] == [20] * 4
    assert [test.labels.count(f"c{k}") for k in range(4)] == [5] * 4


@given(st.integers(2, 5), st.booleans())
def test_every_item_is_in_one_fold(k, stratify):
    data = labelled(23, 3)
    folds = data.k_fold(k, seed=1, stratify=stratify)
    assert sorted(name for _, fold in folds for name in fold.ids) == sorted(data.ids)
    sizes = [len(fold) for _, fold in folds]
    assert max(sizes) - min(sizes) <= 1
    assert all(set(rest.ids).isdisjoint(fold.ids) and len(rest) + len(fold) == 23 for rest, fold in folds)
    if stratify:
        for label in ("c0", "c1", "c2"):
            counts = [fold.labels.count(label) for _, fold in folds]
            assert max(counts) - min(counts) <= 1


def test_splits_depend_on_the_seed_only():
    data = labelled()
    assert data.split(0.5, 0.5, seed=3)[0].ids == data.split(0.5, 0.5, seed=3)[0].ids
    assert data.split(0.5, 0.5, seed=3)[0].ids != data.split(0.5, 0.5, seed=4)[0].ids


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.6), (1.2, -0.2)])
def test_shares_that_are_no_whole_are_refused(shares):
    with pytest.raises(DataError, match="whole"):
        labelled().split(*shares)


def test_by_id():
    data = labelled()
    assert data.with_ids(["s3", "s1"]).ids == ["s3", "s1"]
    with pytest.raises(DataError, match="did you mean"):
        data.with_ids(["s111"])
    with pytest.raises(DataError, match="more than once"):
        data.select([0, 0]).with_ids(["s0"])


def test_summary_counts():
    data = SeriesSet(
        [Series.of([0, 1, 4], [[1, np.nan], [2, 3], [np.nan, np.nan]], label="x"), Series.of([0], [[1, 1]], label="y")],
        channels=["a", "b"],
        notes={"rows merged": 3},
    )
    summary = data.summary()
    assert (summary.items, summary.points) == (2, 4)
    assert summary.missing == {"a": 0.25, "b": 0.5}
    assert summary.gaps[0] == 1
    assert summary.gaps[-1] == 3
    assert summary.labels == {"x": 1, "y": 1}
    assert "rows merged" in str(summary)
    assert json.loads(json.dumps(summary.to_dict()))["points"] == 4
    assert summary.table().row_count == len(summary.rows())


def test_different_channels_labels_or_features_are_refused():
    one = Series.of([0], [[1.0]], label="x")
    for other in (
        Series.of([0], [[1.0, 2.0]], label="x"),
        Series.of([0], [[1.0]], label="z"),
        Series.of([0], [[1.0]], label="x", static=[1.0]),
        Series.of([0], [[1.0]], label="x", target_values=[1.0]),
    ):
        with pytest.raises(DataError):
            SeriesSet([one, other], classes=["x"])


def test_schema_survives_json():
    schema = Schema(("a",), ("mV",), ("age",), ("y",), ("x", "z"), True, "s")
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_slices_and_positions():
    data = labelled()
    assert data[-1].id == "s19"
    assert data[2:4].ids == ["s2", "s3"]
    assert data.select([-1]).ids == ["s19"]
    with pytest.raises(IndexError):
        data[20]
    with pytest.raises(IndexError):
        data.select([20])
    with pytest.raises(DataError, match="two of the channels"):
        SeriesSet([Series.of([0], [[1, 2]])], channels=["a", "a"])


def test_event_types_are_checked():
    with pytest.raises(DataError, match="type"):
        EventSet([EventSequence.of([0.0], [5])], num_types=2)
    assert EventSet([EventSequence.of([0.0], [5])]).num_types == 6
    with pytest.raises(DataError, match="types of events"):
        EventSet([EventSequence.of([0.0], [10**9])])
    assert EventSet([EventSequence.of([0.0, 2.0], [0, 1])]).summary().gaps[2] == 2.0

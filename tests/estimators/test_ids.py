"""Predictions and labels by id: one order, frames out for frames in, labels that cannot be matched are refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor
from contiformer.data import DataError, from_frame
from contiformer.estimators.base import columns_of
from tests.estimators.problems import TINY, TINY_EVENTS, long_table

IDS = [f"p{n}" for n in (7, 3, 11, 0, 5, 1, 10, 2, 8, 4, 9, 6)]
ROLES = {"id": "who", "time": "hour", "values": ["pH", "pulse"]}
both_libraries = pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])


@pytest.fixture(scope="module")
def table(X):
    """Series in an order that is not that of their ids."""
    return long_table(X, ids=IDS)


@pytest.fixture(scope="module")
def by_id(table, y):
    return Classifier.from_options(**TINY).fit(pd.DataFrame(table), dict(zip(IDS, y, strict=True)), **ROLES)


def parsed(model, X, y, **roles):
    """The label that fit gives to each id."""
    data = model._parse(X, y, columns_of(**{**ROLES, **roles}), None)[0]
    return dict(zip(data.ids, data.labels, strict=True))


def test_frames_give_frames_with_ids(table, X, by_id):
    wide, tall = by_id.predict_proba(pd.DataFrame(table)), by_id.predict_proba(pl.DataFrame(table))
    assert wide.index.tolist() == tall["who"].to_list() == sorted(IDS)
    assert (wide.index.name, wide.columns.tolist(), tall.columns) == ("who", ["a", "b"], ["who", "a", "b"])
    np.testing.assert_array_equal(wide.to_numpy(), tall[["a", "b"]].to_numpy())
    listed = by_id.predict_proba(X)
    np.testing.assert_allclose(wide.loc[IDS].to_numpy(), listed, rtol=1e-5)
    kinds = by_id.predict(pd.DataFrame(table))
    assert isinstance(kinds, pd.Series)
    assert kinds.name == "class"
    assert kinds.to_dict() == wide.idxmax(axis=1).to_dict()
    assert by_id.predict(pl.DataFrame(table)).to_dict(as_series=False) == {
        "who": sorted(IDS),
        "class": kinds.tolist(),
    }
    assert by_id.predict(X).tolist() == kinds.loc[IDS].tolist()


def test_every_estimator_answers_by_id(table, X):
    frame = pd.DataFrame(table)
    regressor = Regressor.from_options(**TINY).fit(frame.assign(mean=1.0), label="mean", **ROLES)
    said = regressor.predict(frame)
    assert (said.name, said.index.tolist()) == ("mean", sorted(IDS))
    states = regressor.embed(frame)
    assert states.columns.tolist() == ["who", "hour", *(f"state_{n}" for n in range(8))]
    assert states["who"].tolist() == sorted(frame["who"])
    assert [one.shape for one in regressor.embed(X)] == [(len(times), 8) for times, _ in X]
    assert Interpolator.from_options(**TINY).fit(frame, **ROLES).predict(frame)["who"].tolist() == sorted(frame["who"])
    events = EventPredictor.from_options(**TINY_EVENTS).fit(frame, id="who", time="hour")
    assert events.predict_next(frame)["who"].tolist() == sorted(IDS)
    assert events.log_likelihood(frame).index.tolist() == sorted(IDS)
    assert events.log_likelihood(pl.DataFrame(table)).columns == ["who", "log_likelihood"]


def test_a_forecaster_answers_by_id():
    frame = pd.DataFrame({"who": np.repeat(list("cab"), 30), "t": list(range(30)) * 3, "x": np.arange(90.0)})
    options = {**TINY, "horizon": 2, "min_steps": 0}
    said = Forecaster.from_options(**options).fit(frame, id="who", time="t").predict(frame)
    assert said["who"].tolist() == list("aabbcc")


@both_libraries
def test_labels_are_matched_by_id(table, y, make):
    truth = dict(zip(IDS, y, strict=True))
    model, frame = Classifier.from_options(**TINY), make(table)
    shuffled = pd.Series(truth).sample(frac=1, random_state=1)
    more = pd.concat([shuffled, pd.Series({"other": "c"})])
    second = shuffled.rename_axis("who").rename("kind").reset_index()
    for labels in (truth, shuffled, more, second, pl.DataFrame(second.to_dict("list")), shuffled.to_frame()):
        assert parsed(model, frame, labels) == truth
    both = second.assign(age=3)
    assert parsed(model, frame, both, label="kind") == truth
    assert parsed(model, frame, second.set_index("who")) == truth
    with pytest.raises(DataError, match="y has the columns who, kind, age; name the one that is to be predicted"):
        parsed(model, frame, both)
    with pytest.raises(DataError, match="y has the columns who, kind, not 'alive'; name the one that is to be"):
        parsed(model, frame, second, label="alive")
    with pytest.raises(DataError, match="y has no column 'who'"):
        parsed(model, frame, second.rename(columns={"who": "whose"}), label="kind")


@both_libraries
def test_labels_of_rows(table, y, make):
    truth = dict(zip(IDS, y, strict=True))
    model, frame = Classifier.from_options(**TINY), make(table)
    rows = pd.Series([truth[name] for name in table["who"]])
    for labels in (rows, rows.to_numpy(), rows.tolist(), pl.Series(rows.tolist())):
        assert parsed(model, frame, labels) == truth
    rows.iloc[1] = "b" if rows.iloc[1] == "a" else "a"
    with pytest.raises(DataError, match="row 2: y changes within series 'p7'"):
        parsed(model, frame, rows)
    # ids that are numbers of rows as well
    counted = {**table, "who": [IDS.index(name) for name in table["who"]]}
    of_rows = pd.Series([truth[name] for name in table["who"]])
    assert parsed(model, make(counted), of_rows) == dict(enumerate(y))


@both_libraries
def test_labels_that_cannot_be_matched_are_refused(table, y, make):
    model, frame = Classifier.from_options(**TINY), make(table)
    bare = pd.Series(dict(zip(IDS, y, strict=True)))
    for labels in (y, np.array(y), bare.to_numpy(), tuple(y), pl.Series(y)):
        with pytest.raises(DataError, match=r"y has 12 labels for 12 series, and no ids that assign them"):
            model.fit(frame, labels, **ROLES)
    with pytest.raises(DataError, match=r"the index of y \(0, 1, 2, ...\) does not have the ids of X \('p0'"):
        model.fit(frame, bare.reset_index(drop=True), **ROLES)
    with pytest.raises(DataError, match="y has no label for 'p0' and 1 other ids"):
        model.fit(frame, bare.drop(["p0", "p1"]), **ROLES)
    with pytest.raises(DataError, match="y has two labels for 'p7'"):
        model.fit(frame, pd.concat([bare, bare.iloc[:1]]), **ROLES)
    with pytest.raises(DataError, match="sample_weight has 12 labels for 12 series"):
        model.fit(frame, bare, sample_weight=[1.0] * 12, **ROLES)


def test_rows_and_ids_that_disagree_are_refused(y):
    frame = pd.DataFrame({"who": [3, 1, 2, 0], "t": 0.0, "x": 1.0})
    roles = {"id": "who", "time": "t", "values": ["x"]}
    model, labels = Classifier.from_options(**TINY), pd.Series(["a", "b", "c", "d"])
    with pytest.raises(DataError, match="could be rows of X or ids of X, and the labels differ"):
        parsed(model, frame, labels, **roles)
    assert parsed(model, frame, labels.to_numpy(), **roles) == {3: "a", 1: "b", 2: "c", 0: "d"}
    assert parsed(model, frame, labels.to_dict(), **roles) == {3: "d", 1: "b", 2: "c", 0: "a"}


def test_missing_labels_by_index(y):
    frame = pd.DataFrame({"who": [1, 1, 0, 0, 2], "t": [0.0, 1, 0, 1, 0], "x": 1.0})
    roles = {"id": "who", "time": "t", "values": ["x"]}
    labels = pd.Series(["a", "a", np.nan])  # ids and order of appearance agree
    with pytest.warns(UserWarning, match="1 of 3 series have no label"):
        assert parsed(Classifier(), frame, labels, **roles) == {0: "a", 1: "a"}


def test_labels_beside_a_set(table, X, y):
    data = from_frame(pd.DataFrame(table), id="who", time="hour")
    model, truth = Classifier.from_options(**TINY), dict(zip(IDS, y, strict=True))
    in_order = [truth[name] for name in data.ids]
    for labels in (in_order, np.array(in_order), pd.Series(in_order), pd.Series(truth), truth):
        found = model._parse(data, labels, columns_of(), None)[0]
        assert found.labels == in_order
    with pytest.raises(DataError, match="the index of y"):
        model.fit(data, pd.Series(in_order, index=range(5, 17)))


def test_validation_data_by_id(table, y):
    frame = pd.DataFrame(table)
    labels = pd.Series(dict(zip(IDS, y, strict=True)))
    some = frame[frame["who"].isin(["p1", "p2", "p3"])]
    model = Classifier.from_options(**TINY).fit(frame, labels, validation_data=(some, labels), **ROLES)
    assert model.metrics_["validation"]["accuracy"] == pytest.approx(model.score(some, labels))


def test_ids_of_odd_types(X):
    for ids in ([n + 0.5 for n in range(12)], [float(n) for n in range(12)], [bool(n % 2) for n in range(12)]):
        frame = pd.DataFrame(long_table(X, ids=ids))
        truth = {name: float(name) for name in ids}
        roles = {**ROLES, "duplicates": "mean"}
        found = parsed(Regressor.from_options(**TINY), frame, pd.Series(truth), **roles)
        assert {float(name): label for name, label in found.items()} == truth


def test_the_column_of_the_label_is_no_channel_beside_other_labels(table, y):
    frame = pd.DataFrame(table).assign(died=1.0)
    roles = {"id": "who", "time": "hour", "label": "died"}
    model = Classifier.from_options(**TINY).fit(frame, dict(zip(IDS, y, strict=True)), **roles)
    assert model.schema_.channels == ("pH", "pulse")
    assert model.predict(frame).name == "died"


def test_shuffled_labels_are_never_trained_on():
    """Every way of handing labels to fit either learns a separable problem, or is refused."""
    draw = np.random.default_rng(0)
    ids = draw.permutation(40)
    truth = pd.Series({int(n): int(n % 2) for n in ids})
    rows = {"who": np.repeat(ids, 5), "t": np.tile(np.arange(5.0), 40)}
    frame = pd.DataFrame(rows | {"x": np.repeat(ids % 2 * 4.0 - 2, 5) + draw.normal(size=200)})
    roles = {"id": "who", "time": "t", "values": ["x"]}
    first = frame.assign(kind=frame["who"] % 2).groupby("who", sort=False)["kind"].first()
    for labels in (truth, truth.sample(frac=1), truth.to_dict(), first, frame["who"] % 2):
        model = Classifier.from_options(**{**TINY, "max_epochs": 20}).fit(frame, labels, **roles)
        assert (model.predict(frame) == truth.sort_index()).mean() == 1.0
    assert parsed(Classifier(), frame, truth.sort_index().reset_index(drop=True).to_dict(), **roles) == truth.to_dict()
    for labels in (first.to_numpy(), truth.tolist(), first.reset_index(drop=True)):
        with pytest.raises(DataError, match=r"no ids that assign them|may be the ids of X, or count them"):
            Classifier.from_options(**TINY).fit(frame, labels, **roles)

"""Regressor: labels with an index and sample weights."""

import numpy as np
import pandas as pd
import pytest

from contiformer import Regressor
from contiformer.data import DataError

TINY = {"d_model": 8, "window": 1, "max_epochs": 1, "verbose": 0}


def noisy(seed, scale=1.0):
    draw = np.random.default_rng(seed)
    return [(np.arange(60.0), scale * draw.normal(size=(60, 1)))]


def test_labels_with_an_index_are_matched_by_id():
    ids = list("fedcba")
    frame = pd.DataFrame({"id": np.repeat(ids, 4), "t": list(range(4)) * 6, "x": np.repeat(np.arange(6.0), 4)})
    y = pd.Series({name: float(ids.index(name)) for name in sorted(ids)})
    model = Regressor.from_options(**TINY, validation=0.5)
    model.fit(frame, y, id="id", time="t")
    truth = model._read_answered(frame, y)[0]
    assert dict(zip(truth.ids, truth.labels, strict=True)) == y.to_dict()
    with pytest.raises(DataError, match="no label for 'a'"):
        model.fit(frame, y.drop("a"), id="id", time="t")
    # lists have no ids: a shuffled index is an order
    assert Regressor.from_options(**TINY, validation=0.5).fit(
        noisy(0) * 4, pd.Series([1.0, 2.0, 3.0, 4.0], index=[7, 1, 0, 3])
    )


def test_sample_weights_count_in_the_score():
    X = noisy(0) + noisy(1) + noisy(2) + noisy(3)
    model = Regressor.from_options(**TINY, validation=0.5).fit(X, [1.0, 2.0, 3.0, 4.0])
    assert model.score(X, [1.0, 2.0, 3.0, 9.0]) != model.score(X, [1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 1.0, 9.0])

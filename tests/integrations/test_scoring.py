"""Scoring without an engine: the tables of every task, and their schema."""

import polars as pl
import pytest

from contiformer.data import DataError
from contiformer.estimators import Learner
from contiformer.estimators.scoring import OptionError, Scorer, fingerprint, whole_series
from tests.integrations.expected import assert_same


def test_every_task_in_blocks(case, runs, table):
    name, question = case
    scorer = Scorer.of(Learner.load(runs / name), {}, **question)
    rows = table.select(scorer.required).sort("who", maintain_order=True)
    found = pl.concat(scorer.stream(rows.iter_slices(50), 100))
    assert_same(found, runs / name, table, question)
    time = "day" if name == "dates" else "t"
    assert dict(found.schema) == scorer.schema(table.schema["who"], table.schema[time])


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_series_are_not_divided(rows):
    frame = pl.DataFrame({"id": [1, 1, 1, 2, 3, 3, 3, 3, 3, 4]})
    for size in (1, 2, 7):
        parts = list(whole_series(frame.iter_slices(size), "id", rows))
        assert pl.concat(parts).equals(frame)
        found = [set(part["id"]) for part in parts]
        assert sum(map(len, found)) == 4


def test_options_of_other_tasks_are_rejected(runs):
    for name, question in (("classes", {"at": [1]}), ("events", {"quantiles": [0.5]}), ("values", {"n": 3})):
        with pytest.raises(OptionError, match=f"{next(iter(question))}= cannot be used"):
            Scorer.of(Learner.load(runs / name), {}, **question)
    with pytest.raises(OptionError, match="type="):
        Scorer.of(Learner.load(runs / "values"), {"type": "kind"})


def test_fingerprints_tell_models_apart(runs, tmp_path):
    found = {fingerprint(runs / name) for name in ("classes", "values", "events")}
    assert len(found) == 3
    with pytest.raises(DataError, match="no model is saved here"):
        fingerprint(tmp_path)

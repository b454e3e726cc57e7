"""Blocks of time hidden in clinical records."""

from __future__ import annotations

import numpy as np
import pytest

from contiformer.data import Schema, Series, SeriesSet
from reproduction import blocks
from reproduction.blocks import DISTANCES, SWEEPS, Sampling, hide
from reproduction.experiments import STATIC_TWIN, Cell
from reproduction.results import Results
from reproduction.store import Store
from tests.reproduction.toy import write


def made(count, seed=0):
    """Records in days with two channels, one of which lacks half of its values."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        times = np.sort(rng.uniform(100, 130, 30))
        values = np.stack([np.sin(times), np.where(rng.random(30) < 0.5, np.nan, 50 + 10 * np.cos(times))], 1)
        found.append(Series.of(times, values, id=i))
    return SeriesSet(found, schema=Schema(("a", "b")))


@pytest.fixture
def few(monkeypatch):
    """Records in place of the clinical sets."""
    monkeypatch.setattr(blocks, "load_clinical", lambda name, **options: made(40))
    for name, count in {"LEARNING": 20, "VALIDATION": 8, "TEST": 12}.items():
        monkeypatch.setattr(blocks, name, count)
    blocks.records.cache_clear()
    yield
    blocks.records.cache_clear()


def test_records_are_apart_and_scaled_by_those_to_learn_from(few):
    parts = blocks.records("NAFLD", 3)
    assert [len(part) for part in parts] == [20, 8, 12]
    assert len({one.id for part in parts for one in part}) == 40
    learned = np.concatenate([one.values for one in parts[0]])
    np.testing.assert_allclose(np.nanmean(learned, 0), 0, atol=1e-5)
    np.testing.assert_allclose(np.nanstd(learned, 0), 1, rtol=1e-5)
    assert all((one.times[0], one.times[-1]) == (0, 1) for part in parts for one in part)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_all_rows_of_a_block_are_hidden(few, share):
    whole = {one.id: one for one in blocks.records("NAFLD", 0)[2]}
    hidden = hide(blocks.records("NAFLD", 0)[2], Sampling((share, share)), (0, 1))
    assert len(hidden) > 6
    for one in hidden:
        assert one.target_times[-1] - one.target_times[0] <= share
        between = (one.times > one.target_times[0]) & (one.times < one.target_times[-1])
        assert not between.any()
        np.testing.assert_array_equal(np.sort([*one.times, *one.target_times]), whole[one.id].times)
        assert len(one) + len(one.target_times) == 30


def test_rows_drop_out_of_what_is_visible_only(few):
    data = blocks.records("NAFLD", 0)[2]
    whole, part = (hide(data, Sampling((0.25, 0.25), drop), (0, 1)) for drop in (0.0, 0.7))
    for one, other in zip(whole, part, strict=True):
        np.testing.assert_array_equal(other.target_values, one.target_values)
        assert len(other) == len(one) - round(0.7 * len(one))
        assert set(other.times) <= set(one.times)


def test_errors_are_divided_by_distance(few):
    data = blocks.records("NAFLD", 0)[2]

    class Zero:
        def predict(self, X, at):
            return [Series.of(times, np.zeros((len(times), 2))) for times in at]

    found = blocks.errors(Zero(), data, Sampling((0.5, 0.5)), (0, 1))
    hidden = np.concatenate([one.target_values.ravel() for one in hide(data, Sampling((0.5, 0.5)), (0, 1))])
    assert found["hidden"] == pytest.approx(np.sqrt(np.nanmean(hidden**2)))
    assert set(found) == {"hidden", *DISTANCES}
    assert min(found.values()) <= found["hidden"] <= max(found.values())


def test_cells_of_it_fill_tables_and_picture(few, monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "QUICK", {"min_steps": 2, "d_model": 8})
    store = Store(tmp_path, "quick")
    for model in ("contiformer", STATIC_TWIN):
        write(store, Cell("continuity-blocks", "NAFLD", "blocks", model, 0), blocks.EXPERIMENT)
    results = Results.read(blocks.EXPERIMENT, "honest", store)
    sheets = blocks.EXPERIMENT.further_sheets(results)
    assert [sheet.columns for sheet in sheets] == [("model", *sweep.heads) for sweep in SWEEPS.values()]
    assert blocks.EXPERIMENT.draw(list(results.rows.values()), tmp_path / "a.png").stat().st_size > 1000

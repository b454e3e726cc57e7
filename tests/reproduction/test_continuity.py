"""The experiment on where continuous attention pays: its curves, its samplings, and a cell of it."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction import continuity
from reproduction.continuity import SWEEPS, TIMES, WINDOW, Sampling, curves, observe
from reproduction.experiments import STATIC_TWIN, Cell
from reproduction.results import Results
from reproduction.store import Store
from tests.reproduction.toy import write


@pytest.mark.parametrize("data", continuity.DATA)
def test_curves_are_smooth_and_standardised(data):
    found = curves(data, 1)
    assert found.shape == (continuity.TEST + continuity.VALIDATION + 2000, TIMES, 2)
    np.testing.assert_allclose(found.std((0, 1)), 1)
    assert np.abs(np.diff(found, axis=1)).max() < np.ptp(found) / 4
    assert not np.array_equal(found, curves(data, 2))


@pytest.mark.parametrize("gap", [0.0, 0.4])
def test_observations_lie_in_the_window_and_outside_of_the_gap(gap):
    truth = curves("oscillators", 0)[:20]
    data, regions = observe(truth, Sampling((5, 10), gap), (0, 7))
    # every target time belongs to one region
    assert (sum(part.astype(int) for part in regions.values()) == 1).all()
    for i, one in enumerate(data):
        assert 5 <= len(one) <= 10
        assert 0 <= one.times[0] <= one.times[-1] <= 1
        np.testing.assert_allclose(one.target_values, truth[i, continuity.ASKED], rtol=1e-6)
        hidden = one.target_times[regions["gap"][i]]
        assert not any(hidden[0] <= time <= hidden[-1] for time in one.times if len(hidden))
        assert (one.target_times[regions["beyond"][i]] > 1).all()
        assert not np.isin(one.target_times, one.times).any()
        at = np.round(one.times * (WINDOW - 1)).astype(int)
        assert np.abs(one.values - truth[i, at]).max() < 6 * continuity.NOISE
    share = regions["gap"].mean() * TIMES / WINDOW
    assert share == pytest.approx(gap, abs=0.05)


def test_speed_divides_the_times_and_leaves_the_values():
    truth = curves("spirals", 0)[:4]
    (plain, _), (fast, _) = (observe(truth, Sampling(speed=speed), (0, 7)) for speed in (1.0, 2.0))
    for one, other in zip(plain, fast, strict=True):
        np.testing.assert_allclose(other.times, one.times / 2)
        np.testing.assert_allclose(other.target_times, one.target_times / 2)
        np.testing.assert_array_equal(other.values, one.values)


def test_observations_that_drop_out_leave_the_targets_as_they_are():
    truth = curves("spirals", 0)[:4]
    (whole, _), (part, _) = (observe(truth, Sampling((10, 10), drop=drop), (0, 7)) for drop in (0.0, 0.7))
    for one, other in zip(whole, part, strict=True):
        assert (len(one), len(other)) == (10, 3)
        np.testing.assert_array_equal(other.target_times, one.target_times)
        np.testing.assert_array_equal(other.target_values, one.target_values)


def test_cells_of_it_fill_tables_and_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(continuity, "QUICK", {"min_steps": 2, "d_model": 8})
    monkeypatch.setattr(continuity, "TEST", 6)
    monkeypatch.setattr(continuity, "VALIDATION", 6)
    monkeypatch.setattr(continuity, "SETTINGS", {"curves300": (40, 9)})
    continuity.curves.cache_clear()
    store = Store(tmp_path, "quick")
    cells = [
        Cell("continuity", "spirals", "curves300", model, 0) for model in ("contiformer", STATIC_TWIN, "transformer")
    ]
    for cell in cells:
        write(store, cell, continuity.EXPERIMENT)
        assert store.read(cell)["configuration"]["n_layers"] == 2
    continuity.curves.cache_clear()
    results = Results.read(continuity.EXPERIMENT, "honest", store)
    sheets = continuity.EXPERIMENT.further_sheets(results)
    assert len(sheets) == len(SWEEPS)
    for sheet, sweep in zip(sheets, SWEEPS.values(), strict=True):
        assert sheet.columns == ("model", *sweep.heads)
        assert [line[0].text for line in sheet.lines[:3]] == [f"{cell.model} (1)" for cell in cells]
    said = store.read(cells[1])["details"]["sweeps"]["gap"]["0.1"]["gap"]
    assert sheets[1].lines[1][1].text == f"{said:.3f}"
    assert continuity.EXPERIMENT.draw(list(results.rows.values()), tmp_path / "a.png").stat().st_size > 1000

"""The experiment on where continuous attention pays: its curves, its samplings, and a cell of it."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction import continuity
from reproduction.continuity import SWEEPS, TIMES, WINDOW, Sampling, curves, observe
from reproduction.experiments import STATIC_TWIN, Cell
from reproduction.results import Results
from reproduction.store import Store


@pytest.mark.parametrize("data", continuity.DATA)
def test_curves_are_smooth_and_standardised(data):
    found = curves(data, 1)
    assert found.shape == (continuity.TRAINING + continuity.VALIDATION + continuity.TEST, TIMES, 2)
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


def test_a_cell_of_it_fills_tables_and_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(continuity, "QUICK", {"min_steps": 2, "d_model": 8})
    monkeypatch.setattr(continuity, "curves", lambda data, seed: curves(data, seed)[: 300 + 60 + 6])
    cells = [Cell("continuity", "spirals", "sparse", model, 0) for model in (STATIC_TWIN, "transformer")]
    store = Store(tmp_path, "quick")
    for cell in cells:
        outcome = continuity.run(cell, "quick", 0)
        assert set(outcome.metrics) == {metric.key for metric in continuity.EXPERIMENT.metrics}
        assert np.isfinite(list(outcome.metrics.values())).all()
        assert outcome.configuration["n_layers"] == 2
        machine = {"commit": "a", "date": "2026-01-01"}
        row = {"version": 1, "metrics": outcome.metrics, "details": outcome.details, "budget": "quick"}
        store.write(cell, {**row, "configuration": {}, "seconds": 1.0, "machine": machine})
    results = Results.read(continuity.EXPERIMENT, "honest", store)
    sheets = continuity.sweep_sheets(results)
    assert len(sheets) == len(SWEEPS)
    for sheet, (_, samplings, region) in zip(sheets, SWEEPS.values(), strict=True):
        assert sheet.columns == ("model", *(f"{x:g}" for x in samplings))
        assert [line[0].text for line in sheet.lines] == [cell.model for cell in cells]
        first = next(iter(samplings))
        name = next(name for name, sweep in SWEEPS.items() if sweep[1] is samplings)
        said = outcome.details["sweeps"][name][f"{first:g}"][region]
        assert sheet.lines[1][1].text == f"{said:.3f}"
    assert continuity.draw(list(results.rows.values()), tmp_path / "a.png").stat().st_size > 1000

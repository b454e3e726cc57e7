"""Interrupted trainings leave no result."""

from dataclasses import replace

import pytest

from contiformer import EventPredictor
from contiformer.data.synthetic import hawkes_set
from reproduction import events
from reproduction.experiments import Cell
from reproduction.running import run_cells
from reproduction.store import Store


def test_an_interrupted_training_is_not_stored(tmp_path, monkeypatch):
    """SIGTERM ends a training early; a benchmark must not take what is left for a result."""
    fit = EventPredictor.fit

    def stopped(self, *args, **options):
        fit(self, *args, **options)
        self.outcomes_ = [replace(outcome, interrupted=True) for outcome in self.outcomes_]
        return self

    data = hawkes_set(8, end=10.0)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data, data, data, {}))
    cell, store = Cell("events", "Taxi", "fold1", "hp", 0), Store(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(EventPredictor, "fit", stopped)
        with pytest.raises(KeyboardInterrupt, match="stopped before its end"):
            run_cells(replace(events.EXPERIMENT, absent=lambda cell: None), [cell], store)
    assert cell not in store
    run_cells(replace(events.EXPERIMENT, absent=lambda cell: None), [cell], store, notify=lambda text: None)
    assert cell in store

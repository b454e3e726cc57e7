"""Predictions, likelihoods and samples of EventPredictor: odd sequences, ids, dates and limits."""

import datetime as dt

import numpy as np
import polars as pl
import pytest
import torch

from contiformer import EventPredictor, TrainingOptions
from contiformer.data.batch import collate_events
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.estimators.event_tables import Events, event_table
from contiformer.tasks.events import next_event

ONE_EVENT, NO_EVENTS = ([0.5], [0]), ([], [])


def test_metrics_without_intervals_are_nan(event_model):
    metrics = event_model.evaluate([ONE_EVENT, NO_EVENTS])
    assert metrics["events"] == 0
    assert np.isnan(metrics["log_likelihood"])


def test_integration_error_is_reported_per_sequence(event_model, event_sequences):
    found, error = event_model.log_likelihood(
        [*[ONE_EVENT] * 128, event_sequences[0]], return_error=True, integral="gauss", nodes=2
    )
    assert found.shape == error.shape == (129,)
    assert error[:128].max() == 0 < error[128]


def test_too_long_sequences_are_refused_by_position(event_model, event_sequences):
    with pytest.raises(DataError, match="sequence 0 lasts"):
        event_model.evaluate([([0.0, 1e9, 1e9 + 1], [0, 1, 0]), ([0.0, 1.0], [0, 1])])
    far = ([0.0, 1e9], [0, 1])
    for ask in (lambda: event_model.intensity_at(far, [2e9]), lambda: event_model.sample(far, n=1)):
        with pytest.raises(DataError, match="are the units of time right"):
            ask()


def test_expected_time_does_not_depend_on_the_chunk_size(event_sequences, monkeypatch):
    # as many batch mates or types would
    model = (
        EventPredictor(backbone="hp", training=TrainingOptions(verbose=0)).fit(event_sequences).tasks_[0].model.double()
    )
    memory = model.remember(collate_events([EventSequence.of(*event_sequences[0])]))
    with torch.no_grad():
        whole = next_event.expect(model, memory).mean
        monkeypatch.setattr(next_event, "_AT_ONCE", 1)
        alone = [next_event.expect(model, memory.cut(slice(n, n + 1))).mean for n in range(len(event_sequences[0][0]))]
    torch.testing.assert_close(torch.cat(alone, 1), whole, rtol=1e-7, atol=0.0)


def test_thinning_fails_after_too_many_tries(event_model, event_sequences, monkeypatch):
    monkeypatch.setattr(next_event, "_MOST_TRIES", 1)
    with pytest.raises(RuntimeError, match="no event was drawn in 1 tries"):
        event_model.sample(event_sequences[0], n=1, draws=50)


def test_samples_until_a_date():
    start = dt.datetime(2024, 1, 1)
    X = [([start + dt.timedelta(minutes=5 * k) for k in range(8)], [0, 1] * 4)] * 4
    model = EventPredictor(backbone="hp", training=TrainingOptions(verbose=0)).fit(X)
    end = start + dt.timedelta(hours=2)
    (drawn,) = model.sample(X[0], until=end)
    times, types = drawn
    assert len(times) == len(types) > 0
    assert X[0][0][-1] <= times[0].item()
    assert times[-1].item() <= end
    for wrong in (float("inf"), float("nan")):
        with pytest.raises(DataError, match=r"until has numbers; the model was trained on dates"):
            model.sample(X[0], until=wrong)
    with pytest.raises(ValueError, match="both whole"):
        model.sample(X[0], n=2.5)


def test_ids_of_mixed_types_become_strings(event_model, event_sequences):
    named = [
        EventSequence.of(*event_sequences[0], id="a"),
        EventSequence.of(*event_sequences[1]),
        EventSequence.of(*event_sequences[2], id=7),
    ]
    assert event_model.predict_next(named)["id"].to_list() == ["a", "1", "7"]
    assert event_model.predict_ahead(named, 1, draws=2)["id"].to_list() == ["a", "1", "7"]
    assert event_model.predict_next(event_sequences[:2])["id"].to_list() == [0, 1]


def test_times_beyond_the_range_of_dates_are_null():
    table = event_table(Events(EventSet([]), "set", "dates"), {"t": np.array([0.0, 1e14, np.inf])}, ["t"])
    assert table["t"].to_list() == [dt.datetime(1970, 1, 1), None, None]
    assert table["t"].dtype == pl.Datetime("us")


@pytest.mark.filterwarnings("error")
def test_nan_types_are_refused_without_a_warning(event_model):
    with pytest.raises(DataError, match="not whole numbers from 0"):
        event_model.predict_next([([0.0, 1.0], [0, float("nan")])])


@pytest.mark.parametrize("backbone", ["hp", "rmtpp", "contiformer"])
def test_each_error_is_of_the_estimate_that_minimises_it(backbone, event_sequences):
    quick = TrainingOptions(max_epochs=1, verbose=0)
    model = EventPredictor(backbone=backbone, d_model=8, n_layers=1, training=quick).fit(event_sequences)
    times, types = event_sequences[0]
    prefixes = [(times[:n], types[:n]) for n in range(1, len(times))]
    next_ones, truth = model.predict_next(prefixes), np.asarray(times[1:])
    found = model.evaluate([event_sequences[0]])
    mean, median = (next_ones[name].to_numpy() for name in ("expected_time", "median_time"))
    assert found["rmse"] == pytest.approx(float(np.sqrt(np.mean((mean - truth) ** 2))), rel=2e-3)
    assert found["mae"] == pytest.approx(float(np.abs(median - truth).mean()), rel=2e-3)
    total = model.log_likelihood([event_sequences[0]])[0]
    assert total == pytest.approx(found["log_likelihood"] * found["events"], rel=1e-4)
    assert set(found) <= set(model.metric_meanings())
    assert "median time, in the data's unit" in model.metric_meanings()["mae"]

"""EventPredictor where it was once wrong: odd sequences, features, batches, streams and dates."""

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from contiformer import EventPredictor
from contiformer.data.errors import DataError
from contiformer.data.event_batch import collate_events
from contiformer.data.events import EventSequence
from contiformer.data.synthetic import hawkes_set
from contiformer.estimators.event_tables import event_table
from contiformer.experiments import events
from contiformer.experiments.cell import Cell
from contiformer.experiments.running import run_cells
from contiformer.experiments.store import Store
from contiformer.tasks.events import next_event, sampling

TINY = {"d_model": 8, "n_layers": 1, "max_epochs": 1, "min_steps": 2, "verbose": 0}
ALONE, NOTHING = ([0.5], [0]), ([], [])


@pytest.fixture(scope="module")
def X():
    return [(one.times[:12], one.types[:12]) for one in hawkes_set(8, seed=3)]


@pytest.fixture(scope="module")
def model(X):
    return EventPredictor(**TINY).fit(X)


def _with_features(X, width):
    return [EventSequence.of(times, types, features=np.stack([times] * width, 1)) for times, types in X]


@pytest.mark.parametrize("odd", [ALONE, NOTHING])
def test_training_batches_without_an_interval(odd, X):
    options = {**TINY, "batch_size": 2, "time_weight": 0.0, "type_weight": 0.0}
    plain = EventPredictor(**options).fit(X, validation_data=X[:2])
    mixed = EventPredictor(**options).fit([*X, *[odd] * 6], validation_data=[*X[:2], odd])
    assert mixed.evaluate(X) == pytest.approx(plain.evaluate(X))


def test_validation_without_an_interval_is_refused_or_avoided(X):
    with pytest.raises(DataError, match="no sequence of validation_data has two events"):
        EventPredictor(**TINY).fit(X, validation_data=[ALONE, NOTHING])
    model = EventPredictor(**TINY).fit([*[ALONE] * 40, *X])
    assert model.metrics_["validation"]["events"] > 0


def test_no_events_are_counted_as_none(model):
    metrics = model.evaluate([ALONE, NOTHING])
    assert metrics["events"] == 0
    assert np.isnan(metrics["log_likelihood"])


def test_every_sequence_has_its_error(model, X):
    found, error = model.log_likelihood([*[ALONE] * 128, X[0]], return_error=True, integral="gauss", nodes=2)
    assert found.shape == error.shape == (129,)
    assert error[:128].max() == 0 < error[128]


def test_an_error_names_the_sequence_by_its_place(model, X):
    with pytest.raises(DataError, match="sequence 0 lasts"):
        model.evaluate([([0.0, 1e9, 1e9 + 1], [0, 1, 0]), ([0.0, 1.0], [0, 1])])
    far = ([0.0, 1e9], [0, 1])
    for ask in (lambda: model.intensity_at(far, [2e9]), lambda: model.sample(far, n=1)):
        with pytest.raises(DataError, match="are the units of time right"):
            ask()


def test_features_have_to_be_those_of_the_training(X):
    model = EventPredictor(**TINY).fit(_with_features(X, 2))
    for width in (1, 3):
        with pytest.raises(DataError, match=f"has {width} features of events, others in the training have 2"):
            model.predict_next(_with_features(X, width))
    for ask in (model.predict_next, model.evaluate):
        with pytest.raises(DataError, match="has 0 features of events"):
            ask(X)
    with pytest.raises(ValueError, match="does not draw features"):
        model.sample(X[0], n=1)
    with pytest.raises(DataError, match="has 0 features of events"):
        EventPredictor(**TINY, batch_size=1).fit([*_with_features(X[:6], 2), *(EventSequence.of(*x) for x in X)])
    with pytest.raises(DataError, match="sequences with 1 and with 2 features"):
        EventPredictor(**TINY).fit([*_with_features(X, 2), *_with_features(X, 1)])


def test_the_expected_time_does_not_depend_on_how_much_is_looked_at_at_once(X, monkeypatch):
    # as many batch mates or types would
    model = EventPredictor(backbone="hp", verbose=0).fit(X).tasks_[0].model.double()
    memory = model.remember(collate_events([EventSequence.of(*X[0])]))
    with torch.no_grad():
        whole = next_event.expect(model, memory).mean
        monkeypatch.setattr(next_event, "_AT_ONCE", 1)
        alone = [next_event.expect(model, memory.cut(slice(n, n + 1))).mean for n in range(len(X[0][0]))]
    torch.testing.assert_close(torch.cat(alone, 1), whole, rtol=1e-7, atol=0.0)


def test_a_draw_that_does_not_end_is_no_draw_without_an_event(model, X, monkeypatch):
    monkeypatch.setattr(sampling, "_MOST_TRIES", 1)
    with pytest.raises(RuntimeError, match="no event was drawn in 1 tries"):
        model.sample(X[0], n=1, draws=50)


def test_samples_until_a_date():
    start = dt.datetime(2024, 1, 1)
    X = [([start + dt.timedelta(minutes=5 * k) for k in range(8)], [0, 1] * 4)] * 4
    model = EventPredictor(backbone="hp", verbose=0).fit(X)
    end = start + dt.timedelta(hours=2)
    (drawn,) = model.sample(X[0], until=end)
    assert len(drawn)
    assert drawn.times[-1] <= end.replace(tzinfo=dt.UTC).timestamp()
    for wrong in (float("inf"), float("nan")):
        with pytest.raises(DataError, match=r"until: .* is not a finite time"):
            model.sample(X[0], until=wrong)
    with pytest.raises(ValueError, match="both whole"):
        model.sample(X[0], n=2.5)


def test_ids_of_several_kinds(model, X):
    named = [EventSequence.of(*X[0], id="a"), EventSequence.of(*X[1]), EventSequence.of(*X[2], id=7)]
    assert model.predict_next(named)["id"].to_list() == ["a", "1", "7"]
    assert model.predict_ahead(named, 1, draws=2)["id"].to_list() == ["a", "1", "7"]
    assert model.predict_next(X[:2])["id"].to_list() == [0, 1]


def test_what_comes_after_all_dates_has_none():
    table = event_table("set", {"t": np.array([0.0, 1e14, np.inf])}, ["t"], dates=True)
    assert table["t"].to_list() == [dt.datetime(1970, 1, 1), None, None]
    assert table["t"].dtype == pl.Datetime("us")


def test_a_stream_refuses_what_would_not_end(model):
    stream = model.stream()
    stream.append(0.0, 0)
    with pytest.raises(DataError, match=r"the stream lasts .* are the units of time right"):
        stream.append(1e9, 1)
    stream.append(1.0, 1)
    assert len(stream) == 2


def test_a_stream_keeps_its_model(X):
    model = EventPredictor(**TINY).fit(X)
    stream = model.stream()
    stream.append(0.0, 0)
    before = stream.intensity(1.0)
    model.fit([(np.asarray(times) * 1000, types) for times, types in X])
    assert stream.intensity(1.0).tolist() == before.tolist()


@pytest.mark.filterwarnings("error")
def test_types_that_are_no_numbers_are_refused_without_a_warning(model):
    with pytest.raises(DataError, match="not whole numbers from 0"):
        model.predict_next([([0.0, 1.0], [0, float("nan")])])


def test_quiet_means_nothing_is_printed(X, capfd):
    EventPredictor(**TINY).fit(X).evaluate(X)
    assert capfd.readouterr() == ("", "")


def test_weights_and_nodes_that_cannot_be(model, X):
    for name in ("time_weight", "type_weight"):
        for wrong in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="must not be negative"):
                EventPredictor(**TINY, **{name: wrong}).fit(X)
    with pytest.raises(ValueError, match="nodes must be from 1"):
        model.log_likelihood(X, nodes=0)


def test_types_of_a_stream_are_told_by_their_names():
    frame = pl.DataFrame({"id": [0, 0, 0, 1, 1, 1], "t": [0.0, 1, 2, 0, 1, 3], "k": [1, 2, 3, 1, 3, 2]})
    model = EventPredictor(backbone="hp", verbose=0).fit(frame, id="id", time="t", type="k")
    stream = model.stream()
    stream.append(0.0, 1)
    stream.append(1.0, "3")
    assert stream._types == [0, 2]
    with pytest.raises(DataError, match="there is no type 0"):
        stream.append(2.0, 0)


def test_one_word_is_no_list_of_features_and_there_is_a_type():
    frame = pl.DataFrame({"t": [0.0, 1], "price": [1.0, 2]})
    with pytest.raises(DataError, match="is one word"):
        EventPredictor(verbose=0).fit(frame, time="t", features="price")
    with pytest.raises(ValueError, match="num_types must be at least 1"):
        EventPredictor(num_types=-1, verbose=0).fit([([0.0, 1], [0, 0])] * 2)


def test_a_training_that_was_stopped_gives_no_figures(tmp_path, monkeypatch):
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

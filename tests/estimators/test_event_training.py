"""Training of EventPredictor: short sequences, features of events, options and output."""

import numpy as np
import polars as pl
import pytest

from contiformer import EventPredictor, TrainingOptions
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence
from tests.estimators.problems import TINY_EVENTS as TINY

ONE_EVENT, NO_EVENTS = ([0.5], [0]), ([], [])


def _with_features(X, width):
    return [EventSequence.of(times, types, features=np.stack([times] * width, 1)) for times, types in X]


@pytest.mark.parametrize("odd", [ONE_EVENT, NO_EVENTS])
def test_sequences_without_an_interval_do_not_change_the_training(odd, event_sequences):
    options = {**TINY, "batch_size": 2, "time_weight": 0.0, "type_weight": 0.0}
    plain = EventPredictor.from_options(**options).fit(event_sequences, validation_data=event_sequences[:2])
    mixed = EventPredictor.from_options(**options).fit(
        [*event_sequences, *[odd] * 6], validation_data=[*event_sequences[:2], odd]
    )
    assert mixed.evaluate(event_sequences) == pytest.approx(plain.evaluate(event_sequences))


def test_validation_without_an_interval_is_refused_or_avoided(event_sequences):
    with pytest.raises(DataError, match="no sequence of validation_data has two events"):
        EventPredictor.from_options(**TINY).fit(event_sequences, validation_data=[ONE_EVENT, NO_EVENTS])
    model = EventPredictor.from_options(**TINY).fit([*[ONE_EVENT] * 40, *event_sequences])
    assert model.metrics_["validation"]["events"] > 0


def test_features_must_match_the_training(event_sequences):
    model = EventPredictor.from_options(**TINY).fit(_with_features(event_sequences, 2))
    for width in (1, 3):
        with pytest.raises(DataError, match=f"has {width} features of events, others in the training have 2"):
            model.predict_next(_with_features(event_sequences, width))
    for ask in (model.predict_next, model.evaluate):
        with pytest.raises(DataError, match="has 0 features of events"):
            ask(event_sequences)
    with pytest.raises(ValueError, match="does not draw features"):
        model.sample(event_sequences[0], n=1)
    with pytest.raises(DataError, match="has 0 features of events"):
        EventPredictor.from_options(**TINY, batch_size=1).fit(
            [*_with_features(event_sequences[:6], 2), *(EventSequence.of(*x) for x in event_sequences)]
        )
    with pytest.raises(DataError, match="sequences with 1 and with 2 features"):
        EventPredictor.from_options(**TINY).fit(
            [*_with_features(event_sequences, 2), *_with_features(event_sequences, 1)]
        )


def test_negative_weights_and_zero_nodes_are_refused(event_model, event_sequences):
    for name in ("time_weight", "type_weight"):
        for wrong in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="must not be negative"):
                EventPredictor.from_options(**TINY, **{name: wrong}).fit(event_sequences)
    with pytest.raises(ValueError, match="nodes must be from 1"):
        event_model.log_likelihood(event_sequences, nodes=0)


def test_features_must_be_a_list_and_num_types_positive():
    frame = pl.DataFrame({"t": [0.0, 1], "price": [1.0, 2]})
    with pytest.raises(DataError, match="is one word"):
        EventPredictor(training=TrainingOptions(verbose=0)).fit(frame, time="t", features="price")
    with pytest.raises(ValueError, match="num_types must be at least 1"):
        EventPredictor(num_types=-1, training=TrainingOptions(verbose=0)).fit([([0.0, 1], [0, 0])] * 2)


def test_verbose_0_prints_nothing(event_sequences, capfd):
    EventPredictor.from_options(**TINY).fit(event_sequences).evaluate(event_sequences)
    assert capfd.readouterr() == ("", "")

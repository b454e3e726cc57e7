"""Event streams: limits, independence of later training, names of types."""

import numpy as np
import polars as pl
import pytest

from contiformer import EventPredictor, TrainingOptions
from contiformer.data.errors import DataError
from tests.estimators.problems import TINY_EVENTS as TINY


def test_a_stream_refuses_a_far_too_long_wait(event_model):
    stream = event_model.stream()
    stream.append(0.0, 0)
    with pytest.raises(DataError, match=r"the stream lasts .* are the units of time right"):
        stream.append(1e9, 1)
    stream.append(1.0, 1)
    assert len(stream) == 2


def test_refitting_the_model_does_not_change_a_stream(event_sequences):
    model = EventPredictor.from_options(**TINY).fit(event_sequences)
    stream = model.stream()
    stream.append(0.0, 0)
    before = stream.intensity(1.0)
    model.fit([(np.asarray(times) * 1000, types) for times, types in event_sequences])
    assert stream.intensity(1.0).tolist() == before.tolist()


def test_types_of_a_stream_are_given_by_name():
    frame = pl.DataFrame({"id": [0, 0, 0, 1, 1, 1], "t": [0.0, 1, 2, 0, 1, 3], "k": [1, 2, 3, 1, 3, 2]})
    model = EventPredictor(backbone="hp", training=TrainingOptions(verbose=0)).fit(frame, id="id", time="t", type="k")
    stream = model.stream()
    stream.append(0.0, 1)
    stream.append(1.0, "3")
    assert stream._types == [0, 2]
    with pytest.raises(DataError, match="there is no type 0"):
        stream.append(2.0, 0)

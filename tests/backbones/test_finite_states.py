"""Non-finite states are refused, naming series and step."""

import re

import numpy as np
import pytest
import torch

from contiformer import Classifier, TrainingOptions
from contiformer.backbones import make_backbone
from contiformer.data import DataError, Series, SeriesSet
from contiformer.data.batch import collate


@pytest.mark.no_array_checks
@pytest.mark.parametrize("name", ["cru", "cadn", "tst", "gru_d"])
def test_states_are_finite_or_refused_naming_series_and_step(name):
    torch.manual_seed(0)
    model = make_backbone(name, 2, d_model=16).eval()
    draw = np.random.default_rng(0)
    for gap, size in ((1000.0, 1.0), (1e6, 1.0), (1.0, 1e4), (1.0, 1e15), (1.0, 1e30)):
        values = size * draw.normal(size=(4, 2)).astype("f4")
        batch = collate([Series.of(np.arange(4.0), values, id="calm"), Series.of(gap * np.arange(4.0), values, id="x")])
        for queries in (None, batch.times):
            states, told = None, ""
            try:
                with torch.no_grad():
                    states = model(batch, queries)
            except FloatingPointError as error:
                told = str(error)
            finite = states is not None and bool(torch.isfinite(states).all())
            assert finite or re.search(r"no finite state for series '\w+' at step \d+ \(scaled time .* longest", told)


def test_estimators_name_the_series_without_a_finite_state():
    X = [(np.arange(5.0), np.sin(np.arange(5.0) + n)) for n in range(8)]
    quick = TrainingOptions(max_epochs=1, verbose=0)
    model = Classifier(backbone="cru", d_model=8, training=quick).fit(X, [0, 1] * 4)
    far = SeriesSet(
        [Series.of(np.arange(5.0), np.arange(5.0), id="a"), Series.of(1e6 * np.arange(5.0), np.arange(5.0), id="b")]
    )
    with pytest.raises(FloatingPointError, match="CRU has no finite state for series 'b' at step"):
        model.predict(far)
    with pytest.raises(DataError, match=r"series 'c' has a value in channel 'channel_0' that is .* standard dev"):
        model.predict(SeriesSet([Series.of(np.arange(5.0), 1e15 * np.arange(5.0), id="c")]))


def test_streams_refuse_states_that_are_not_finite():
    model = make_backbone("contiformer", 2, d_model=16, causal=True).eval()
    stream = model.stream()
    stream.append(torch.zeros(2), 0.0)
    with pytest.raises(FloatingPointError, match=r"no finite state at step 1 of the stream \(scaled time 1\)"):
        stream.append(torch.full((2,), torch.inf), 1.0)

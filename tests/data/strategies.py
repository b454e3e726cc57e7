"""Random sets for properties."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from contiformer.data import EventSequence, EventSet, Series, SeriesSet
from contiformer.data.series_set import Schema

#: Numbers that tempt rounding: tiny, huge, many digits.
reals = st.floats(allow_nan=False, allow_infinity=False, width=64)
small = st.floats(-1e6, 1e6)


@st.composite
def series_sets(draw, *, empty_series=False, dates=False):
    channels, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    narrow, labelled, static = draw(st.booleans()), draw(st.sampled_from([None, "str", "int"])), draw(st.integers(0, 2))
    named = draw(st.sampled_from(["str", "int", None]))
    series = []
    for n in range(count):
        length = draw(st.integers(0 if empty_series else 1, 5))
        stamps = draw(st.lists(st.integers(0, 2**40) if dates else reals, min_size=length, max_size=length))
        cells = draw(st.lists(small | st.just(np.nan), min_size=length * channels, max_size=length * channels))
        values = np.array(cells, np.float32 if narrow else np.float64).reshape(length, channels)
        times = np.array(stamps, np.float64) / (1e3 if dates else 1)
        fixed = draw(st.lists(small | st.just(np.nan), min_size=static, max_size=static)) if static else None
        label = None if labelled is None else draw(st.sampled_from(["a", "b, c"] if labelled == "str" else [1, 7]))
        name = {"str": f"0{n}x", "int": 10 - n, None: None}[named]
        series.append(Series.of(times, values, static=fixed, label=label, id=name))
    classes = {None: None, "str": ("b, c", "a", "unused"), "int": (1, 7)}[labelled]
    schema = Schema(
        tuple(f"channel {n}" for n in range(channels)),
        units=("mmHg",) * channels,
        static=tuple(f"fixed {n}" for n in range(static)),
        classes=classes,
        dates=dates,
        time_unit="h",
    )
    return SeriesSet(series, schema=schema)


@st.composite
def event_sets(draw):
    types, features = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    sequences = []
    for n in range(draw(st.integers(1, 4))):
        length = draw(st.integers(0, 5))
        times = draw(st.lists(reals, min_size=length, max_size=length))
        kinds = draw(st.lists(st.integers(0, types - 1), min_size=length, max_size=length))
        extra = None
        if features:
            cells = draw(st.lists(small | st.just(np.nan), min_size=length * features, max_size=length * features))
            extra = np.array(cells).reshape(length, features)
        sequences.append(EventSequence.of(times, kinds, features=extra, id=draw(st.sampled_from([None, f"s{n}", n]))))
    return EventSet(sequences, num_types=types, type_names=[f"type {k}" for k in range(types)])

"""Random sets for the round trips of .ts, and where the real ones are."""

import os
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

SHARED = Path(os.environ.get("CONTIFORMER_DATA", Path(__file__).parents[2] / "../shared/data")).resolve()
UEA = SHARED / "uea"

_words = st.text("abcXYZ019_-.(){}%#@?,'\"éü", min_size=1, max_size=6)
_times = st.floats(-1e12, 1e12)
_dates = st.integers(-(2**50), 2**50).map(lambda microseconds: microseconds / 1e6)


def _values(length, channels, dtype):
    floats = st.floats(allow_infinity=False, allow_nan=False, width=32 if dtype == np.float32 else 64)
    return hnp.arrays(dtype, (length, channels), elements=floats | st.just(np.nan))


@st.composite
def series_sets(draw, *, stamped=True):
    """Sets with everything that the formats can hold; times other than 0, 1, ... where ``stamped``."""
    channels = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    count = draw(st.integers(1, 5))
    dates = stamped and draw(st.booleans())
    clock = draw(st.sampled_from(["plain", "numbers", "few"])) if stamped else "plain"
    moments = {"numbers": _dates if dates else _times, "few": st.sampled_from([0.0, 1.5, 2.0])}
    label = draw(st.sampled_from(["classes", "numbers", "none"]))
    names = st.lists(_words, min_size=1, max_size=4, unique=True)
    classes = tuple(draw(names)) if label == "classes" else None
    of_label = {"classes": st.sampled_from(classes or ("",)), "none": st.none()}
    of_label["numbers"] = st.floats(allow_nan=False, allow_infinity=False)
    shortest = 0 if label != "none" else 1
    ids = draw(st.lists(st.text(max_size=3) | st.integers(), min_size=count, max_size=count) | st.just(range(count)))
    series = []
    for name in ids:
        length = draw(st.integers(shortest, 6))
        if clock == "plain":
            times = np.arange(length)
        else:
            times = draw(st.lists(moments[clock], min_size=length, max_size=length))
        values = draw(_values(length, channels, dtype))
        series.append(Series.of(np.asarray(times, float), values, label=draw(of_label[label]), id=name))
    schema = Schema(
        channels=tuple(draw(st.lists(st.text(max_size=4), min_size=channels, max_size=channels, unique=True))),
        units=draw(st.sampled_from([(), ("mV",) * channels, (None,) * channels])),
        classes=classes,
        dates=dates,
        time_unit=draw(st.sampled_from([None, "h"])),
    )
    return SeriesSet(series, schema=schema) if draw(st.booleans()) else SeriesSet(series, classes=classes)

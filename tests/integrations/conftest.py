"""A saved run for each task, and rows in the order of their times, so that no series is in one place."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor, TrainingOptions

TINY = {"d_model": 8, "training": TrainingOptions(max_epochs=1, min_steps=0, verbose=0)}
ROLES = {"id": "who", "time": "t"}
#: Task and question.
CASES = {
    "classes": ("classes", {}),
    "numbers": ("numbers", {}),
    "values": ("values", {"at": [0.5, 2.0]}),
    "quantiles": ("values", {"quantiles": [0.1, 0.9]}),
    "forecast": ("forecast", {}),
    "dates": ("dates", {}),
    "next event": ("events", {}),
    "events ahead": ("events", {"n": 2}),
}


def rows(series=40, points=12):
    draw = np.random.default_rng(0)
    t = draw.uniform(0, 10, series * points)
    who = np.repeat([f"p{n}" for n in range(series)], points)
    x = np.sin(t) + 0.1 * draw.normal(size=len(t))
    kind = np.where(draw.uniform(size=len(t)) < 0.5, "tea", "jam")
    number = np.repeat(draw.normal(size=series), points)
    frame = pl.DataFrame({"who": who, "t": t, "x": x, "kind": kind, "number": number})
    up = pl.col("who").str.strip_prefix("p").cast(pl.Int64) % 2
    day = dt.datetime(2024, 1, 1)
    dates = [day + dt.timedelta(hours=round(float(hour), 3)) for hour in t]
    return frame.with_columns(up=up, day=pl.Series(dates)).sort("t")


@pytest.fixture(scope="session")
def table():
    return rows()


@pytest.fixture(scope="session")
def runs(table, tmp_path_factory):
    fitted = {
        "classes": Classifier(**TINY).fit(table, **ROLES, values=["x"], label="up"),
        "numbers": Regressor(**TINY).fit(table, **ROLES, values=["x"], label="number"),
        "values": Interpolator(**TINY).fit(table, **ROLES, values=["x"]),
        "forecast": Forecaster(horizon=2, history=6, **TINY).fit(table, **ROLES, values=["x"]),
        "dates": Interpolator(**TINY).fit(table, id="who", time="day", values=["x"]),
        "events": EventPredictor(**TINY).fit(table, **ROLES, type="kind"),
    }
    folder = tmp_path_factory.mktemp("engines")
    for name, estimator in fitted.items():
        estimator.save(folder / name)
    return folder


@pytest.fixture(params=list(CASES))
def case(request):
    return CASES[request.param]

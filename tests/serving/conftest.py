"""Models that were trained once, and a client of a server that answers for all of them."""

import polars as pl
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor, TrainingOptions
from contiformer.estimators.learner import Learner
from contiformer.serving import Limits, create_app
from tests.serving.problems import days, orders, waves, without

QUICK = TrainingOptions(max_epochs=1, min_steps=0, verbose=0)
SMALL = {"d_model": 8, "training": QUICK}
URL = "http://localhost"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run folders, by task."""
    folder = tmp_path_factory.mktemp("runs")
    rows = waves()
    roles = {"id": "who", "time": "t", "values": ["x", "<script>"]}
    table = pl.DataFrame(rows)
    dated = pl.DataFrame(days()).with_columns(pl.col("date").str.to_datetime())
    lists = [([0.0, 1.0, 2.5], [[n, -n], [0.5 * n, n], [n, 1.0]]) for n in range(8)]
    models = {
        "classes": Classifier(**SMALL).fit(table, label="kind", **roles),
        "sizes": Regressor(**SMALL).fit(table, label="size", **roles),
        "targets": Regressor(law="gaussian", **SMALL).fit(table, targets=["later"], **roles),
        "curves": Interpolator(**SMALL).fit(table, **roles),
        "loads": Forecaster(horizon=4, history=12, **SMALL).fit(dated, id="meter", time="date", values=["load"]),
        "orders": EventPredictor(**SMALL).fit(pl.DataFrame(orders()), id="user", time="hour", type="action"),
        "plain": Classifier(**SMALL).fit(lists, ["a", "b"] * 4),
    }
    for name, model in models.items():
        model.save(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="session")
def models(runs):
    """The trained models themselves, loaded as the server loads them."""
    return {name: Learner.load(run) for name, run in runs.items()}


@pytest.fixture(scope="session")
def client(runs):
    """A client of a server with all models."""
    with TestClient(create_app(list(runs.values())), base_url=URL) as found:
        yield found


@pytest.fixture(scope="session")
def rows():
    """New series for the models of waves: as they would come, without answers."""
    return without(waves(5, seed=1), "kind", "size", "later")


@pytest.fixture
def alone(runs):
    """A client of a server with one model."""
    with TestClient(create_app([runs["classes"]]), base_url=URL) as found:
        yield found


#: Limits that a test exceeds at once.
LITTLE = Limits(body_bytes=20_000, waiting_bytes=60_000, rows=100, series=8, length=30, times=100, streams=3)


@pytest.fixture
def small(runs):
    """A client of a server with narrow limits."""
    with TestClient(create_app(list(runs.values()), limits=LITTLE), base_url=URL) as found:
        yield found

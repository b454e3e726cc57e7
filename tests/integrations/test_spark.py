"""Spark in local mode with two workers."""

import os
import sys

import pytest

from contiformer.data import DataError
from contiformer.data.readers.columns import as_polars
from contiformer.estimators.scoring import fingerprint, load_in_worker
from tests.integrations.expected import assert_same

pytest.importorskip("pyspark", reason="pyspark is not installed: make test-engines")


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", 4).config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    yield session
    session.stop()


def test_answers_are_those_of_the_estimator(case, runs, table, session):
    from contiformer.integrations import spark  # noqa: PLC0415

    name, question = case
    df = session.createDataFrame(table.to_pandas())
    scored = spark.score(df, runs / name, partitions=3, block_rows=100, **question)
    assert dict(scored.dtypes)["who"] == "string"
    assert_same(as_polars(scored.toPandas()), runs / name, table, question)


def test_columns_of_other_names(runs, table, session):
    from contiformer.integrations import spark  # noqa: PLC0415

    df = session.createDataFrame(table.rename({"who": "patient", "t": "hour"}).to_pandas())
    scored = spark.score(df, runs / "values", id="patient", time="hour")
    assert scored.columns == ["patient", "hour", "x", "x_std"]
    with pytest.raises(DataError, match="no column 'who'"):
        spark.score(df, runs / "values")


def test_a_worker_loads_the_run_once(runs, table, session):
    import pandas as pd  # noqa: PLC0415

    from contiformer.integrations import spark  # noqa: PLC0415

    df = session.createDataFrame(table.to_pandas())
    assert spark.score(df, runs / "classes", partitions=8).count() == 40
    run, expected = str(runs / "classes"), fingerprint(runs / "classes")

    def loaded(batches):
        import torch  # noqa: PLC0415

        load_in_worker(run, expected)
        facts = {"pid": os.getpid(), "loads": load_in_worker.cache_info().misses, "threads": torch.get_num_threads()}
        yield pd.DataFrame([facts] * len(list(batches)))

    # the tasks are more than the workers
    found = session.range(8).repartition(8).mapInPandas(loaded, "pid long, loads long, threads long").toPandas()
    assert 1 <= len(set(found["pid"])) <= 2
    assert os.getpid() not in set(found["pid"])
    # workers may have loaded runs of other tests before, but this one once
    assert (found.groupby("pid")["loads"].nunique() == 1).all()
    assert (found["threads"] == 1).all()


def test_another_run_on_the_worker_is_refused(runs):
    with pytest.raises(DataError, match="not the one that was asked for"):
        load_in_worker(str(runs / "classes"), "0" * 16)

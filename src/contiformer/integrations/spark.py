"""Score the series of a Spark DataFrame with a saved run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from contiformer.data.errors import DataError
from contiformer.data.readers.blocks import BLOCK_ROWS
from contiformer.data.readers.columns import as_polars
from contiformer.estimators.frames import as_pandas
from contiformer.estimators.scoring import Scorer, scorer_on_workers


def score(
    df: Any,
    run: str | Path,
    *,
    id: str | None = None,
    time: str | None = None,
    at: Any = None,
    quantiles: Any = None,
    n: int | None = None,
    partitions: int | None = None,
    block_rows: int = BLOCK_ROWS,
    **columns: Any,
) -> Any:
    """Predict for all series of a Spark DataFrame; returns one with the columns of ``contiformer predict``.

    Rows are brought together by id, so that no series is divided, and scored in blocks of series. A worker process
    loads the run once, from a path that all workers see. Nothing is computed before Spark needs the result.

    Args:
        df: a row for each point, measurement or event, in any order.
        run: the folder of a saved model.
        id, time, columns: names of columns where they differ from those of the training (``type``, ``variable``, ...).
        at: times of the predictions: a list, or a dictionary from ids to lists.
        quantiles: levels, in place of mean and standard deviation.
        n: events ahead.
        partitions: of the shuffle by id; None: Spark decides.
        block_rows: rows that a worker scores at a time.

    Example:
        >>> from contiformer.integrations import spark
        >>> risk = spark.score(session.read.parquet("stays"), "runs/mortality", id="patient")  # doctest: +SKIP
    """
    named, question = {"id": id, "time": time, **columns}, {"at": at, "quantiles": quantiles, "n": n}
    scorer, on_worker = scorer_on_workers(run, named, question, df.columns)
    key = scorer.columns.id

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        yield from map(as_pandas, on_worker().stream(map(as_polars, batches), block_rows))

    asked = df.select(*scorer.required)
    shuffled = asked.repartition(key) if partitions is None else asked.repartition(partitions, key)
    return shuffled.sortWithinPartitions(key).mapInPandas(answers, _schema(scorer, df))


def _schema(scorer: Scorer, df: Any) -> Any:
    """The columns of the predictions; ids and dates of the types that they have in the input."""
    try:
        from pyspark.sql import types  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Spark is an extra: pip install 'contiformer[spark]'") from None
    roles = scorer.columns
    given = {field.name: field.dataType for field in df.schema.fields}
    time = given[roles.time]
    if isinstance(time, types.NumericType | types.StringType):
        if isinstance(time, types.StringType):
            raise DataError("times are text", column=roles.time, remedy="cast them to numbers or timestamps first")
        time = types.DoubleType()
    known = {pl.Float64: types.DoubleType(), pl.Int64: types.LongType(), pl.String: types.StringType()}
    known |= {pl.Boolean: types.BooleanType()}
    fields = scorer.schema(given[roles.id], time).items()
    return types.StructType([types.StructField(name, known.get(kind, kind)) for name, kind in fields])

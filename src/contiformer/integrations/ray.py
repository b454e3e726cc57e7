"""Score the series of a Ray Dataset with a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from contiformer.data.readers.blocks import BLOCK_ROWS
from contiformer.estimators.scoring import scorer_on_workers

_GROUP = "contiformer group"


def score(
    dataset: Any,
    run: str | Path,
    *,
    id: str | None = None,
    time: str | None = None,
    at: Any = None,
    quantiles: Any = None,
    n: int | None = None,
    groups: int | None = None,
    block_rows: int = BLOCK_ROWS,
    **columns: Any,
) -> Any:
    """Predict for all series of a Ray Dataset; returns one with the columns of ``contiformer predict``.

    Series are divided into groups by a hash of their ids, so that none is divided, and each group is one task. A worker
    process loads the run once, from a path that all workers see. Nothing is computed before Ray needs the result.

    Args:
        dataset: a row for each point, measurement or event, in any order.
        run: the folder of a saved model.
        id, time, columns: names of columns where they differ from those of the training (``type``, ``variable``, ...).
        at: times of the predictions: a list, or a dictionary from ids to lists.
        quantiles: levels, in place of mean and standard deviation.
        n: events ahead.
        groups: number of groups, each of which has to fit into the memory of a worker; None: four for each processor.
        block_rows: rows that a worker scores at a time.

    Example:
        >>> from contiformer.integrations import ray as scoring
        >>> risk = scoring.score(ray.data.read_parquet("stays"), "runs/mortality", id="patient")  # doctest: +SKIP
    """
    try:
        import ray  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Ray is an extra: pip install 'contiformer[ray]'") from None
    named, question = {"id": id, "time": time, **columns}, {"at": at, "quantiles": quantiles, "n": n}
    scorer, on_worker = scorer_on_workers(run, named, question, dataset.columns())
    key = scorer.columns.id
    parts = groups or 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))

    def grouped(batch: Any) -> Any:
        frame = pl.DataFrame(pl.from_arrow(batch))
        return frame.with_columns((pl.col(key).hash() % parts).cast(pl.Int64).alias(_GROUP)).to_arrow()

    def answers(group: Any) -> Any:
        rows = pl.DataFrame(pl.from_arrow(group)).drop(_GROUP).sort(key, maintain_order=True)
        return pl.concat(on_worker().stream([rows], block_rows)).to_arrow()

    rows = dataset.select_columns(scorer.required).map_batches(grouped, batch_format="pyarrow")
    return rows.groupby(_GROUP, num_partitions=parts).map_groups(answers, batch_format="pyarrow")

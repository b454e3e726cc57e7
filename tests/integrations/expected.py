"""The answers of an estimator itself, in the form of `contiformer predict`."""

import polars as pl
from polars.testing import assert_frame_equal

from contiformer.estimators import Learner


def expected(run, table, question):
    estimator = Learner.load(run)
    if run.name == "events":
        if "n" not in question:
            return estimator.predict_next(table)
        alone = table.sort("who", "t").partition_by("who", maintain_order=True)
        return pl.concat([estimator.predict_ahead(one, question["n"]) for one in alone])
    if run.name == "classes":
        shares = estimator.predict_proba(table)
        best = estimator.predict(table)
        return (
            best.rename({best.columns[1]: "class"})
            .join(shares, on="who")
            .rename({name: f"probability_{name}" for name in shares.columns[1:]})
        )
    if run.name in ("values", "dates") and "quantiles" not in question:
        mean, std = estimator.predict(table, return_std=True, **question)
        return pl.concat([mean, std.select(pl.col("x").alias("x_std"))], how="horizontal")
    return estimator.predict(table, **question)


def assert_same(found, run, table, question):
    """Keyed by id and time, whatever the order of the rows; batches are others, so digits of float32 may be."""
    wanted = expected(run, table, question)
    keys = [name for name in wanted.columns if name in ("who", "t", "day", "step")]
    assert found.columns == wanted.columns
    found = found.cast(dict(wanted.schema))
    assert_frame_equal(found.sort(keys), wanted.sort(keys), rel_tol=1e-4, abs_tol=1e-5)

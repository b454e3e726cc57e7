"""Ray Data in local mode with two workers."""

import os

import polars as pl
import pytest

from contiformer.data import DataError
from contiformer.estimators.scoring import fingerprint, load_in_worker
from tests.integrations.expected import assert_same

ray = pytest.importorskip("ray", reason="ray is not installed: make test-engines")


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def _frame(dataset):
    return pl.concat([pl.DataFrame(pl.from_arrow(ray.get(part))) for part in dataset.to_arrow_refs()])


def test_answers_are_those_of_the_estimator(case, runs, table):
    from contiformer.integrations.ray import score  # noqa: PLC0415

    name, question = case
    dataset = ray.data.from_arrow(table.to_arrow()).repartition(3)
    scored = score(dataset, runs / name, groups=3, block_rows=100, **question)
    assert_same(_frame(scored), runs / name, table, question)


def test_columns_of_other_names(runs, table):
    from contiformer.integrations.ray import score  # noqa: PLC0415

    dataset = ray.data.from_arrow(table.rename({"who": "patient", "t": "hour"}).to_arrow())
    scored = _frame(score(dataset, runs / "values", id="patient", time="hour"))
    assert scored.columns == ["patient", "hour", "x", "x_std"]
    assert scored.height == table.height
    with pytest.raises(DataError, match="no column 'who'"):
        score(dataset, runs / "values")


def test_a_worker_loads_the_run_once(runs):
    run, expected = str(runs / "classes"), fingerprint(runs / "classes")

    def loaded(_):
        import torch  # noqa: PLC0415

        load_in_worker(run, expected)
        loads = load_in_worker.cache_info().misses
        return {"pid": [os.getpid()], "loads": [loads], "threads": [torch.get_num_threads()]}

    tasks = ray.data.range(16, override_num_blocks=16).map_batches(loaded, batch_size=None).to_pandas()
    assert len(tasks) == 16
    assert len(set(tasks["pid"])) < 16
    assert os.getpid() not in set(tasks["pid"])
    # workers may have loaded runs of other tests before, but this one once
    assert (tasks.groupby("pid")["loads"].nunique() == 1).all()
    assert (tasks["threads"] == 1).all()

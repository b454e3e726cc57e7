"""Training on two processes."""

import csv
import signal
import socket

import pytest

from contiformer.data import Loader
from tests.training.jobs import finished, result_of, same, start, two_kinds, wait_for_rounds

#: Nothing random within a step, and a last batch of one series for two processes.
EXACT = {"task": {"dropout": 0.0, "keep": 1.0}, "series": 21, "max_epochs": 3}


def start_two(folder, **given):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [start(folder, folder / f"result{rank}", rank=rank, world=2, port=port, **given) for rank in range(2)]


def finished_two(folder, **given):
    processes = start_two(folder, **given)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    first, second = (result_of(folder, folder / f"result{rank}") for rank in range(2))
    assert same(first["best"], second["best"])
    assert first["history"] == second["history"]
    return first


@pytest.mark.parametrize("checked", [9, 1])
def test_two_processes_train_the_same_model_as_one(checked, tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
    one = finished(alone, alone / "result", checked=checked, **EXACT)
    two = finished_two(together, checked=checked, **EXACT)
    for row, other in zip(one["history"], two["history"], strict=True):
        assert row == pytest.approx(other, rel=1e-5)
        assert other["judged"] == checked
    for name, weights in one["best"].items():
        assert weights.numpy() == pytest.approx(two["best"][name].numpy(), rel=1e-4, abs=1e-6)
    files = sorted(path.name.split(".")[0] for path in together.rglob("[!.]*") if path.is_file())
    assert files == ["events", "history", "last", "previous", "result0", "result1"]
    assert len(list(csv.DictReader((together / "history.csv").open()))) == 3


def test_two_killed_processes_resume(tmp_path):
    given = {"max_epochs": 4, "series": 21}
    expected = finished_two(tmp_path / "whole", **given)
    processes = start_two(tmp_path / "cut", **given)
    wait_for_rounds(tmp_path / "cut", 2, processes[0])
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    # The second may die of the lost connection before its own kill arrives.
    assert processes[0].exitcode == -signal.SIGKILL
    assert processes[1].exitcode != 0
    assert same(finished_two(tmp_path / "cut", **given), expected)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 9])
def test_every_series_is_in_exactly_one_process(world, count, monkeypatch):
    data = two_kinds(count)

    def seen(shuffle):
        """(series, weight) of each batch of each process."""
        parts = []
        for rank in range(world):
            monkeypatch.setattr("contiformer.data.loader._place", lambda rank=rank: (rank, world))
            loader = Loader(data, 4, shuffle=shuffle, shared=True)
            parts.append([(batch.ids, batch.weight is None) for batch in loader])
            assert len(loader) == len(parts[-1]) > 0
        return parts

    for parts in (seen(True), seen(False)):
        assert sorted(i for part in parts for ids, counts in part if counts for i in ids) == list(range(count))
    assert len({len(part) for part in seen(True)}) == 1
    whole = [set(batch.ids) for batch in Loader(data, 4)]
    together = [{i for ids, counts in step if counts for i in ids} for step in zip(*seen(True), strict=True)]
    assert together == whole


def test_a_loader_is_not_shared_by_default(monkeypatch):
    monkeypatch.setattr("contiformer.data.loader._place", lambda: (1, 2))
    assert sum(map(len, Loader(two_kinds(5), 2, shuffle=False))) == 5

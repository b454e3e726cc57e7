"""Cells: files that are whole or not there, claims, shards, and what happens when something goes wrong."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from contiformer.data.errors import DataError
from reproduction import running
from reproduction.experiments import Cell
from reproduction.results import Progress
from reproduction.store import Store, cell_of
from tests.reproduction import toy

CELL = Cell("toy", "north", "drop30", "ours", 0)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(path))
    return lambda: Counter(path.read_text().splitlines()) if path.exists() else Counter()


def _run(store, cells=None, experiment=toy.SOUND):
    said = []
    cells = experiment.grid("honest") if cells is None else cells
    return running.run_cells(experiment, cells, store, notify=said.append), said


def test_a_result_comes_back_as_it_was_written(store):
    store.write(CELL, {"metrics": {"accuracy": 0.25}, "budget": "full"})
    row = store.read(CELL)
    assert CELL in store
    assert cell_of(row) == CELL
    assert row["metrics"] == {"accuracy": 0.25}
    assert store.read(Cell("toy", "north", "drop30", "ours", 1)) is None


def test_a_write_that_breaks_off_leaves_the_old_file(store, monkeypatch):
    store.write(CELL, {"metrics": {"accuracy": 0.25}})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match="No space left"):
        store.write(CELL, {"metrics": {"accuracy": 0.75}})
    monkeypatch.undo()
    assert store.read(CELL)["metrics"] == {"accuracy": 0.25}
    assert [path.name for path in store.path(CELL).parent.iterdir()] == [store.path(CELL).name]


@pytest.mark.parametrize("text", ['{"table": "toy"', "{}", "[]", "", '{"metrics": {"accuracy": "high"}}'])
def test_a_damaged_file_is_named_with_what_to_do(store, text):
    store.write(CELL, {"metrics": {}})
    whole = json.loads(store.path(CELL).read_text())
    if text.startswith('{"metrics'):
        text = json.dumps(whole | json.loads(text))
    store.path(CELL).write_text(text)
    with pytest.raises(DataError, match=r"ours-honest-seed0\.json: the result is damaged .*; remove the file"):
        store.rows("toy")


def test_a_training_that_another_table_has_is_not_repeated(store, log):
    other, third = replace(CELL, table="other"), replace(CELL, table="third")
    store.write(other, toy.row(other, accuracy=0.25) | {"configuration": {"width": 3}})
    twinned = replace(toy.SOUND, twins=lambda cell: [third, other] if cell == CELL else [third])
    tally, said = _run(store, [CELL, replace(CELL, seed=1)], twinned)
    row = store.read(CELL)
    assert (tally.done, log()) == (2, {str(replace(CELL, seed=1)): 1})
    assert cell_of(row) == CELL
    assert (row["metrics"], row["configuration"], row["taken_from"]) == ({"accuracy": 0.25}, {"width": 3}, str(other))
    assert f"taken from {other}" in said[0]
    # and what was taken may be taken again, under the name of what was trained
    _run(store, [third], replace(toy.SOUND, twins=lambda cell: [CELL]))
    assert store.read(third)["taken_from"] == str(other)


def test_quick_and_full_results_lie_apart(store):
    quick = Store(store.folder, "quick")
    quick.write(CELL, {"metrics": {}})
    assert CELL in quick
    assert CELL not in store
    assert store.rows("toy") == []


def test_a_claim_holds_against_another_process_until_it_dies(store):
    script = (
        "import sys; from pathlib import Path; from reproduction.experiments import Cell\n"
        "from reproduction.store import Store\n"
        f"with Store(Path({str(store.folder)!r})).claim({CELL!r}) as mine:\n"
        "    print(mine, flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)
    assert other.stdout.readline() == "True\n"
    with store.claim(CELL) as mine:
        assert not mine
    assert _run(store, [CELL])[0].elsewhere == 1
    other.kill()
    other.communicate()
    with store.claim(CELL) as mine:
        assert mine


def test_where_there_are_no_locks_cells_are_run_all_the_same(store, monkeypatch):
    def unsupported(number, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with store.claim(CELL) as mine:
        assert mine


@pytest.mark.parametrize("parts", [1, 2, 5, 100])
def test_shards_divide_the_grid(parts):
    cells = toy.grid("honest")
    shards = [running.shard(cells, part, parts) for part in range(1, parts + 1)]
    assert sorted(cell for own in shards for cell in own) == sorted(cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    with pytest.raises(ValueError, match="from 1 to"):
        running.shard(cells, 0, parts)


def test_finished_cells_are_never_run_again(store, log):
    cells = toy.SOUND.grid("honest")
    first, _ = _run(store, cells[:3])
    second, said = _run(store)
    third, nothing = _run(store)
    assert (first.done, second.before, second.done) == (3, 3, 13)
    assert (third.done, third.before, nothing) == (0, 16, [])
    assert set(log().values()) == {1}
    assert "accuracy 0.8000" in said[-2]
    assert "1 left, about" in said[-2]
    assert "left" not in said[-1]
    assert all({"configuration", "seconds", "machine", "budget"} <= set(row) for row in store.rows("toy"))


def test_cells_without_data_are_not_run(store, log):
    tally, _ = _run(store)
    assert len(tally.absent) == 8
    assert all("gone is not here" in line for line in tally.absent)
    assert not any("gone" in cell for cell in log())
    assert str(tally) == "cells: 16 run, 8 without data"


def test_a_cell_that_fails_does_not_stop_the_others_and_is_tried_again(store, log):
    tally, said = _run(store, experiment=toy.EXPERIMENT)
    assert (tally.done, len(tally.failed)) == (16, 8)
    assert "failed: toy north drop30 broken, rival seed 0: RuntimeError: no luck" in said
    _run(store, experiment=toy.EXPERIMENT)
    assert {log()[name] for name in log() if "broken" in name} == {2}
    assert {log()[name] for name in log() if "broken" not in name} == {1}


def test_ctrl_c_ends_the_run_and_frees_the_cell(store, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(toy.time, "sleep", stopped)
    with pytest.raises(KeyboardInterrupt):
        _run(store)
    monkeypatch.undo()
    assert store.rows("toy") == []
    assert _run(store)[0].done == 16


@pytest.mark.usefixtures("toy_in_children", "only_toy")
def test_a_kill_loses_only_the_running_cell(store, log, monkeypatch):
    monkeypatch.setenv("TOY_SECONDS", "0.3")
    command = [sys.executable, "-m", "reproduction", "toy", "--backbones", "ours,rival"]
    process = subprocess.Popen([*command, "--output", str(store.folder)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(log()) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = store.rows("toy")
    assert len(kept) == 2
    monkeypatch.setenv("TOY_SECONDS", "0")
    tally, _ = _run(store)
    assert (tally.before, tally.done) == (2, 14)
    assert sorted(log().values()) == [1] * 15 + [2]


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_stopping_the_parent_ends_all_processes(tmp_path, monkeypatch, number, kind):
    sleeper = tmp_path / "python"
    sleeper.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(running.sys, "executable", str(sleeper))
    before = signal.getsignal(signal.SIGTERM)

    def stop():
        while not (tmp_path / "pids").exists() or len((tmp_path / "pids").read_text().split()) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(kind):
        running.run_side_by_side(["toy"], 3)
    assert signal.getsignal(signal.SIGTERM) == before
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 1", 1), ("kill -9 $$", 9)])
def test_the_exit_code_of_side_by_side_is_that_of_a_process_that_failed(tmp_path, monkeypatch, script, code):
    worker = tmp_path / "python"
    worker.write_text(f"#!/bin/sh\nif mkdir {tmp_path}/first; then exit 0; fi\n{script}\n")
    worker.chmod(0o755)
    monkeypatch.setattr(running.sys, "executable", str(worker))
    assert running.run_side_by_side(["toy"], 2) == code


@pytest.mark.parametrize(
    ("done", "runnable", "left", "state"),
    [
        (7, 7, 0, "complete"),
        (5, 5, 0, "complete here"),
        (5, 6, 1, "partly"),
        (5, 0, 0, "partly"),
        (0, 5, 5, "not begun"),
        (0, 0, 0, "no data"),
    ],
)
def test_a_table_is_complete_here_only_if_its_data_are(done, runnable, left, state):
    assert Progress(done, runnable, left, all=7).state == state

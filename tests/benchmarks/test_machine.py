"""Facts about the machine: load by others, and the commit of the code."""

import subprocess

import pytest

import contiformer
from benchmarks.machine import commit
from contiformer import machine


@pytest.mark.parametrize(("worked", "expected"), [(0, False), (40, False), (60, True), (100, True)])
def test_busy_is_what_others_do_while_this_process_sleeps(worked, expected, monkeypatch):
    counted = iter([(1000, 5000), (1000 + worked, 5100)])
    monkeypatch.setattr(machine, "_work_and_time", lambda: next(counted))
    # the load of the last minute, which this process made, does not count
    monkeypatch.setattr(machine, "load", lambda: 100.0)
    assert machine.busy(seconds=0.0) is expected


@pytest.mark.parametrize(("load", "expected"), [(None, False), (0.1, False), (1000.0, True)])
def test_without_counters_the_load_decides(load, expected, monkeypatch):
    monkeypatch.setattr(machine, "_work_and_time", lambda: None)
    monkeypatch.setattr(machine, "load", lambda: load)
    assert machine.busy() is expected


def test_counters_of_the_system(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 2 3 100 5 1 1 4 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert machine._work_and_time(stat) == (21, 126)
    stat.write_text("")
    assert machine._work_and_time(stat) is None
    assert machine._work_and_time(tmp_path / "none") is None


def test_only_changes_of_the_code_make_a_commit_dirty(tmp_path, monkeypatch):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True)

    names = ("src/contiformer/machine.py", "src/other.py", "pyproject.toml", "docs/page.md")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(contiformer, "__file__", str(tmp_path / names[0]))
    clean = commit()
    assert len(clean) == 12
    (tmp_path / "docs/page.md").write_text("2")
    (tmp_path / "src/new.py").write_text("2")
    assert commit() == clean
    for name in ("src/other.py", "pyproject.toml"):
        (tmp_path / name).write_text("2")
        assert commit() == f"{clean}+"
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(contiformer, "__file__", str(tmp_path / "src/new.py"))
    assert commit() is None

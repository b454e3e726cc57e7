"""The accuracy benchmark: what was measured is kept, and not measured again."""

import json

from contiformer.benchmarks import accuracy
from contiformer.benchmarks.accuracy import Case, measure, summary


def test_runs_are_written_one_by_one_and_not_repeated(monkeypatch, tmp_path):
    asked = []

    def run(seed, verbose):
        asked.append(seed)
        return {"accuracy": 0.5 + 0.1 * seed, "seconds": 1.0}

    monkeypatch.setitem(accuracy.CASES, "toy", Case("toy", "by hand", "accuracy", "max", 0.59, run))
    path = tmp_path / "not there yet" / "accuracy.json"
    said = []
    measure(["toy"], [0, 1], path, 0, said.append)
    rows = measure(["toy"], [0, 1, 2], path, 0, said.append)
    assert asked == [0, 1, 2]
    assert [row["seed"] for row in json.loads(path.read_text())] == [0, 1, 2]
    assert all({"cpu", "threads", "commit", "date"} <= set(row["machine"]) for row in rows)
    assert len(said) == 3
    (line,) = summary(rows)
    assert line == ("toy", "accuracy", "0.6", "0.5 0.6 0.7", "≥ 0.59 ✓", "1")


def test_a_missed_bar_is_shown(monkeypatch):
    monkeypatch.setitem(accuracy.CASES, "toy", Case("toy", "", "mse", "min", 0.2, lambda seed, verbose: {}))
    (line,) = summary([{"case": "toy", "seed": 0, "metrics": {"mse": 0.3, "seconds": 2.0}}])
    assert line[4] == "≤ 0.2 ✗"

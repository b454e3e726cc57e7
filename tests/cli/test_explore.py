"""`contiformer explore`: the data that it shows, and the server that it starts."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from contiformer.cli.explore import explored_data
from contiformer.cli.run_folder import load_run
from tests.cli.conftest import run

NONE = {"id": None, "time": None, "label": None, "labels": None, "type": None}


def test_the_test_part_is_shown_and_its_file_named(classified, table, capsys):
    folder = classified[0]
    found = explored_data(folder, load_run(folder), None, **NONE)
    assert len(found) == 6
    assert set(found.labels) == {"up", "down"}
    said = capsys.readouterr().err
    assert f"reading {table}" in said
    assert "the test part" in said


def test_without_a_test_part_what_was_validated_on_is_shown(interpolated, capsys):
    found = explored_data(interpolated, load_run(interpolated), None, **NONE)
    assert 0 < len(found) < 24
    assert "the validation part" in capsys.readouterr().err


def test_a_file_with_or_without_labels(classified, tmp_path):
    folder, model = classified[0], load_run(classified[0])
    bare = tmp_path / "bare.csv"
    bare.write_text("name,t,x\na,0,1\na,1,2\nb,0,1\n")
    found = explored_data(folder, model, str(bare), **NONE | {"id": "name"})
    assert (found.ids, found.labels) == (["a", "b"], [None, None])
    labels = tmp_path / "kinds.csv"
    labels.write_text("name,kind\na,up\nb,down\n")
    found = explored_data(folder, model, str(bare), **NONE | {"id": "name", "labels": labels})
    assert found.labels == ["up", "down"]


def test_a_model_without_data_is_explored_all_the_same(classified, tmp_path, capsys):
    model = load_run(classified[0])
    model.save(tmp_path / "bare")
    assert explored_data(tmp_path / "bare", model, None, **NONE) is None
    started = json.loads((classified[0] / "run.json").read_text())
    started["data"]["data"] = str(tmp_path / "gone.csv")
    (tmp_path / "bare" / "run.json").write_text(json.dumps(started))
    assert explored_data(tmp_path / "bare", model, None, **NONE) is None
    assert "pass --data FILE" in capsys.readouterr().err


def test_columns_without_data_are_refused(classified):
    done = run("explore", classified[0], "--label", "kind", "--no-browser")
    assert done.exit_code == 2
    assert "--label" in done.output


def test_evaluate_refuses_columns_without_data(classified):
    done = run("evaluate", classified[0], "--label", "kind")
    assert done.exit_code == 2
    assert "--data, which is missing" in " ".join(done.output.split())


def test_events_have_no_labels(classified):
    done = run("explore", classified[0], "--data", "x.csv", "--type", "kind", "--no-browser")
    assert done.exit_code == 2


def test_the_page_is_served_until_a_signal(classified):
    words = [sys.executable, "-m", "contiformer.cli.main", "explore", str(classified[0]), "--no-browser"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = None
            for line in process.stderr:
                found = re.search(r"exploring on (http://127\.0\.0\.1:\d+/)", line)
                if found:
                    address = found[1]
                    break
            assert address is not None
            # the socket is bound; the server listens a moment later
            for _ in range(200):
                try:
                    with urllib.request.urlopen(f"{address}explore/models", timeout=5) as answer:
                        models = json.load(answer)["models"]
                    break
                except OSError:
                    time.sleep(0.05)
            assert models[0]["count"] == 6
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)

import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import typer

from contiformer.cli.settings import checked, merged, parse_assignments
from contiformer.estimators import Classifier, Forecaster, Regressor
from contiformer.training import callbacks
from contiformer.training.processes import alone_in
from tests.cli.conftest import TINY, run

COLUMNS = ("--id", "who", "--time", "t", "--label", "kind", "--values", "x")


def _error(result, code):
    assert result.exit_code == code, result.output
    *notes, error = result.stderr.splitlines()
    assert all(re.match("note: |.* was not finished; |.* to train and validate on$", line) for line in notes)
    assert error.startswith("Error: ")
    return error


def _process(*words, **options):
    command = [sys.executable, "-m", "contiformer.cli.main", *map(str, words)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def test_run_prints_metrics_files_and_next_commands(classified):
    folder, _, result = classified
    assert re.search(r"accuracy\s*│\s*[\d.]+\s*│\s*[\d.]+", result.stdout)
    for command in ("evaluate", "predict", "plot", "report", "explore"):
        assert f"contiformer {command} {folder}" in result.stdout
    saved = json.loads((folder / "config.json").read_text())
    assert saved["parameters"]["d_model"] == 8
    assert saved["columns"]["time"] == "t"
    assert set(json.loads((folder / "metrics.json").read_text())) >= {"validation", "test"}
    start = json.loads((folder / "run.json").read_text())
    assert start["data"]["test"] == "0.25"
    assert Path(start["data"]["data"]).is_absolute()


def test_wrong_parameters_leave_no_run_folder(tmp_path):
    result = run("train", "classification", "--data", "spirals", "--set", "d_model=0", "--output", tmp_path / "run")
    assert "d_model must be at least 1, got 0" in _error(result, 1)
    assert not (tmp_path / "run").exists()


def test_finished_run_is_not_trained_again(classified):
    folder, words, _ = classified
    before = (folder / "model.safetensors").stat().st_mtime_ns
    result = run(*words)
    assert result.exit_code == 0
    assert "is finished" in result.stdout
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_resuming_with_other_options_names_them(classified):
    _, words, _ = classified
    error = _error(run(*words, "--set", "dropout=0.5", "--drop", "0.1"), 1)
    assert "drop 0.0 (now 0.1), dropout 0.2 (now 0.5)" in error


def test_runtime_options_may_differ_when_resuming(classified):
    _, words, _ = classified
    assert run(*words, "--set", "num_workers=1").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("events", "--data", "spirals"), 1, "no set of events and no file 'spirals'"),
        (("clasification", "--data", "spirals"), 2, "did you mean 'classification'"),
        (("classification", "--data", "BasicMotion"), 1, "did you mean 'BasicMotions'"),
        (("classification", "--data", "Taxi"), 1, "`contiformer train events`"),
        (("interpolation", "--data", "hawkes"), 1, "`contiformer train events`"),
        (("classification", "--data", "nowhere.csv"), 1, "nowhere.csv: there is no such file"),
        (("classification",), 2, "--data"),
        (("classification", "--data", "spirals", "--set", "d_modl=3"), 2, "did you mean 'd_model'"),
        (
            ("classification", "--data", "spirals", "--set", "d_model=big"),
            2,
            "d_model must be a whole number, not 'big'",
        ),
        (("classification", "--data", "spirals", "--set", "d_model"), 2, "key=value"),
        (("classification", "--data", "spirals", "--set", "run_dir=x"), 2, "--output"),
        (("classification", "--data", "spirals", "--set", "learning_rate=-1"), 1, "learning_rate must be positive"),
        (("classification", "--data", "spirals", "--backbone", "contifomer"), 2, "did you mean 'contiformer'"),
        (("classification", "--data", "spirals", "--config", "nowhere.yaml"), 1, "nowhere.yaml: there is no such file"),
        (("classification", "--data", "spirals", "--test", "1.5"), 1, "1.5 is not a share"),
        (("interpolation", "--data", "spirals", "--targets", "x"), 2, "--targets"),
    ],
)
def test_wrong_options_are_reported_in_one_line(words, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in _error(run("train", *words), code)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("d_model: [1", 1, "this is no YAML"),
        ("- d_model", 1, "this is no list of settings"),
        ("d_modell: 8", 2, "did you mean 'd_model'"),
        ("pooling: best", 2, "pooling must be 'learned' or 'mean' or 'last'"),
        ("learning_rate: fast", 2, "learning_rate must be a number"),
        ("max_epochs: true", 2, "max_epochs must be a whole number or null"),
    ],
)
def test_wrong_configuration_is_reported_in_one_line(text, code, said, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    error = _error(
        run("train", "classification", "--data", "spirals", "--config", path, "--output", tmp_path / "r"), code
    )
    assert said in error
    assert "settings.yaml" in error
    assert not (tmp_path / "r").exists()


def test_a_wrong_column_is_named(table, tmp_path):
    words = ("train", "classification", "--data", table, "--id", "whom", "--time", "t", "--label", "kind")
    error = _error(run(*words, "--output", tmp_path / "run"), 1)
    assert "no column 'whom'; did you mean 'who'" in error
    assert str(table) in error
    error = _error(run("train", "classification", "--data", table, "--output", tmp_path / "other"), 1)
    assert "pass --time, and --id" in error


def test_debug_shows_the_trace_wherever_it_stands():
    for words in (
        ("--debug", "train", "interpolation", "--data", "no.csv"),
        ("train", "interpolation", "--data", "no.csv", "--debug"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert "Traceback" in result.stderr


def test_settings_are_converted_and_merged():
    given = parse_assignments(["learning_rate=1e-3", "backbone_options.n_heads=2", "batch_size=null", "devices=2"])
    found = checked(Classifier, given, "--set")
    assert found == {"learning_rate": 0.001, "backbone_options": {"n_heads": 2}, "batch_size": None, "devices": 2}
    both = merged({"backbone_options": {"n_heads": 4, "rule": "x"}, "seed": 1}, found)
    assert both["backbone_options"] == {"n_heads": 2, "rule": "x"}
    assert both["seed"] == 1
    nested = parse_assignments(["training.max_epochs=2", "seed=1"])
    assert checked(Classifier, nested, "--set") == {"max_epochs": 2, "seed": 1}
    assert checked(Regressor, {"frames": [2, 3]}, "") == {"frames": (2, 3)}
    assert checked(Forecaster, {"quantiles": [0.1, 0.9]}, "") == {"quantiles": (0.1, 0.9)}


@dataclass
class Inner:
    epochs: int = 1
    rate: float = 0.1
    keep: Literal["best", "last"] = "best"


@dataclass
class Outer:
    size: int = 8
    inner: Inner | None = None
    run_dir: str | None = None


def test_fields_of_a_nested_dataclass_are_set_by_path_by_mapping_or_alone():
    by_path = parse_assignments(["inner.epochs=2", "inner.rate=1e-3"])
    assert checked(Outer, by_path, "--set") == {"epochs": 2, "rate": 0.001}
    assert checked(Outer, {"size": 4, "inner": {"keep": "last"}}, "") == {"size": 4, "keep": "last"}
    assert checked(Outer, {"epochs": 3, "size": 4}, "") == {"epochs": 3, "size": 4}
    assert checked(Outer, {"inner": None}, "") == {}
    assert merged(checked(Outer, {"inner": {"epochs": 5}}, ""), checked(Outer, {"epochs": 6}, "")) == {"epochs": 6}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inner": {"epoch": 2}}, "Inner has no parameter 'epoch'; did you mean 'epochs'"),
        ({"epoch": 2}, "Outer has no parameter 'epoch'; did you mean 'epochs'"),
        ({"inner": {"epochs": "many"}}, "epochs must be a whole number, not 'many'"),
        ({"keep": "both"}, "keep must be 'best' or 'last', not 'both'"),
        ({"inner": 3}, "inner must be a mapping or null, not 3"),
        ({"run_dir": "x"}, "use --output"),
        ({"epochs": 2, "inner": {"epochs": 3}}, "epochs is given twice, also as inner.epochs"),
    ],
)
def test_nested_settings_are_checked_like_others(settings, said):
    with pytest.raises(typer.BadParameter, match=re.escape(said)):
        checked(Outer, settings, "--set")


def test_configuration_of_a_run_can_be_reused(classified, table, tmp_path):
    folder, _, _ = classified
    words = ("train", "classification", "--data", table, *COLUMNS, "--config", folder / "config.json")
    assert run(*words, "--output", tmp_path / "again").exit_code == 0
    saved = json.loads((tmp_path / "again" / "config.json").read_text())["parameters"]
    assert saved["d_model"] == 8
    assert "run_dir" not in saved


@pytest.mark.parametrize("task", ["forecasting", "regression"])
def test_forecasting_and_regression(task, table, tmp_path):
    own = {"forecasting": ("--set", "horizon=2", "--set", "history=4"), "regression": ("--targets", "twice")}[task]
    words = ("train", task, "--data", table, *COLUMNS, *own, "--test", "0.3", *TINY, "--output", tmp_path / "run")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "rmse" in result.stdout
    assert run("evaluate", tmp_path / "run").exit_code == 0
    result = run("predict", tmp_path / "run", "--input", table)
    assert result.exit_code == 0, result.output
    wanted = "who,t,x" if task == "forecasting" else "who,t,twice"
    assert result.stdout.splitlines()[0] == wanted
    drawn = run("plot", tmp_path / "run").stdout.split()
    assert [Path(name).name for name in drawn] == [
        "learning.png",
        "forecasts.png" if task == "forecasting" else "series.png",
    ]


def test_unwritable_output_is_rejected(table, tmp_path):
    (tmp_path / "file").write_text("")
    error = _error(run("train", "interpolation", "--data", table, *COLUMNS, "--output", tmp_path / "file" / "run"), 1)
    assert "cannot be made" in error
    assert "--output" in error


@pytest.mark.parametrize(("version", "said"), [(99, "upgrade contiformer"), (4, "again")])
def test_run_of_another_version_is_rejected(classified, tmp_path, version, said):
    folder, words, _ = classified
    shutil.copytree(folder, tmp_path / "other")
    for name, command in (("run.json", (*words, "--output")), ("config.json", ("evaluate",))):
        saved = json.loads((tmp_path / "other" / name).read_text())
        (tmp_path / "other" / name).write_text(json.dumps(saved | {"format": version}))
        assert said in _error(run(*command, tmp_path / "other"), 1)


def test_run_on_a_full_disk_fails_in_one_line_and_resumes(table, tmp_path):
    words = ("train", "classification", "--data", table, *COLUMNS, *TINY, "--output", tmp_path / "run")

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    process = _process(*words, preexec_fn=little_room)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert errors.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "config.json").exists()
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert run(*words).exit_code == 0


def test_run_resumed_after_ctrl_c_gives_the_same_model(table, tmp_path):
    words = ["train", "classification", "--data", table, *COLUMNS, *TINY, "--set", "max_epochs=40"]
    words += ["--set", "patience=1.0", "--output"]
    process = _process(*words, tmp_path / "run")
    history = tmp_path / "run" / "history.csv"
    give_up = time.monotonic() + 200
    while not history.exists() and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 130, errors
    assert re.search(
        r"stopped: what was learned up to epoch \d+ .* go on with the same command: contiformer train", errors
    )
    assert "this run is not finished" in _error(run("evaluate", tmp_path / "run"), 1)
    result = run(*words, tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert re.search(r"going on after epoch \d+", result.stderr)
    assert run(*words, tmp_path / "whole").exit_code == 0
    models = [Classifier.load(tmp_path / name).tasks_[0].state_dict() for name in ("run", "whole")]
    assert all(np.array_equal(models[0][key], models[1][key]) for key in models[0])


def test_help_imports_no_heavy_packages():
    code = (
        "import sys; from typer.testing import CliRunner; from contiformer.cli.main import app; "
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0; "
        "print([m for m in ('torch', 'lightning', 'polars', 'numpy', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def half_done(table, tmp_path):
    """A run of 6 epochs that stopped after 3, the command, and the weights that it would have had."""
    words = ["train", "classification", "--data", table, *COLUMNS, *TINY, "--set", "max_epochs=6", "--set"]
    words += ["patience=1.0", "--output"]
    assert run(*words, tmp_path / "whole").exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "CHECKPOINT_SHARE", math.inf)
        patch.setattr(callbacks.History, "on_train_epoch_start", _stop_in_the_fourth_epoch, raising=False)
        assert run(*words, tmp_path / "run").exit_code != 0
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").exists()
    return tmp_path / "run", words, Classifier.load(tmp_path / "whole").tasks_[0].state_dict()


def _stop_in_the_fourth_epoch(self, trainer, module):
    if len(self.rows) == 3:
        raise OSError("the machine went down")


@pytest.mark.parametrize("name", ["run.json", "history.csv"])
@pytest.mark.parametrize("damage", [b"", b"{", b"round,step\n1", b"\xff\x00\xff", b'{"format": "x"}', b"[]"])
def test_a_damaged_description_or_history_does_not_block_a_resume(half_done, name, damage):
    folder, words, expected = half_done
    (folder / name).write_bytes(damage)
    result = run(*words, folder)
    assert result.exit_code == 0, result.output
    assert "damaged" in result.stderr
    assert "going on after epoch 3" in result.stderr
    found = Classifier.load(folder).tasks_[0].state_dict()
    assert all(np.array_equal(found[key], expected[key]) for key in expected)
    assert len((folder / "history.csv").read_text().splitlines()) == 7
    assert "is finished" in run(*words, folder).stdout


def test_a_damaged_description_is_not_written_again_for_another_run(half_done):
    folder, words, _ = half_done
    (folder / "run.json").write_bytes(b"{")
    other = [word if word != "patience=1.0" else "patience=0.9" for word in words]
    assert "is another one: it has patience 1.0 instead of 0.9" in _error(run(*other, folder), 1)
    assert run(*words, folder).exit_code == 0


def test_a_finished_run_can_be_used_without_its_description_and_history(classified, table, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(classified[0], folder)
    (folder / "run.json").write_bytes(b"{")
    (folder / "history.csv").write_bytes(b"x")
    result = run("predict", folder, "--input", table)
    assert result.exit_code == 0, result.output
    assert "is damaged" in result.stderr
    assert "pass --data" in _error(run("evaluate", folder), 1)
    assert run("evaluate", folder, "--data", table).exit_code == 0
    result = run(*classified[1][:-1], folder)
    assert result.exit_code == 0, result.output
    assert (folder / "run.json").read_bytes() == (classified[0] / "run.json").read_bytes()
    assert "learning.png" in run("plot", folder).stdout


@pytest.mark.parametrize(
    ("wrong", "right"), [("--label=kin", "--label=kind"), ("--test=0.99", "--test=0.25"), ("--id=t", "--id=who")]
)
def test_a_command_that_failed_before_training_does_not_block_the_corrected_one(table, tmp_path, wrong, right):
    given = {"--id": "who", "--time": "t", "--values": "x", "--label": "kind"}
    columns = [f"{name}={value}" for name, value in given.items() if not right.startswith(name)]
    words = ("train", "classification", "--data", table, *columns, *TINY, "--output", tmp_path / "run")
    assert run(*words, wrong).exit_code == 1
    result = run(*words, right)
    assert result.exit_code == 0, result.output


def test_a_run_folder_is_used_by_one_process(table, tmp_path):
    words = ("train", "classification", "--data", table, *COLUMNS, *TINY, "--output", tmp_path / "run")
    with alone_in(tmp_path / "run"):
        assert "another process is training in this folder; wait until" in _error(run(*words), 1)
    assert run(*words).exit_code == 0

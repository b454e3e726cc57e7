"""``contiformer export``: files, the data they are checked on, and refusals."""

import json

import pytest
import torch

from tests.cli.conftest import TINY, run

pytestmark = [pytest.mark.no_cover, pytest.mark.no_array_checks, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def quick(table, tmp_path_factory):
    """A run whose graph is traced in seconds, with a test part."""
    folder = tmp_path_factory.mktemp("runs") / "quick"
    columns = ("--id", "who", "--time", "t", "--values", "x", "--label", "kind", "--test", "0.25")
    small = ("--backbone", "transformer", "--set", "window=0")
    result = run("train", "classification", "--data", table, *columns, *TINY, *small, "--output", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_file_is_checked_on_the_test_part(quick):
    result = run("export", quick, "--to", "pt2", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["largest_difference"] < facts["limit"] == 1e-4
    assert (facts["data"], facts["series"]) == ("the series of the test part", 6)
    assert "waves.csv" in result.stderr
    assert torch.export.load(quick / "model.pt2")


def test_wrong_usage_is_refused(quick, tmp_path):
    for words, problem in (
        (("--to", "tflite"), "'tflite' is none of onnx, pt2"),
        (("--to", "onnx", "--output", tmp_path / "model.pt2"), "has to end in .onnx"),
        (("--to", "pt2", "--id", "who"), "--data, which is missing"),
    ):
        result = run("export", quick, *words)
        assert result.exit_code == 2, result.output
        assert problem in result.stderr


def test_data_is_named(quick, table, tmp_path, monkeypatch):
    """Other data, and generated series where the run has no test part, without tracing again."""
    from contiformer.integrations import export as module  # noqa: PLC0415

    seen = {}

    def write(estimator, path, X=None, *, data=""):
        seen["X"], path = X, tmp_path / "model.pt2"
        path.write_bytes(b"")
        return module.Exported(path, 1e-7, 0 if X is None else len(X), data or "generated series", {})

    monkeypatch.setattr("contiformer.cli.export.write", write)
    result = run("export", quick, "--to", "pt2", "--data", table)
    assert f"24 series: the series in {table}" in result.stdout
    assert "1.0e-07" in result.stdout
    (quick / "run.json").rename(quick / "kept.json")
    try:
        assert "generated series" in run("export", quick, "--to", "pt2").stdout
    finally:
        (quick / "kept.json").rename(quick / "run.json")
    assert seen["X"] is None

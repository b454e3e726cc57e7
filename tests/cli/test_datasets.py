import hashlib
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from contiformer.backbones import BACKBONES
from contiformer.cli import main
from contiformer.cli.datasets import app
from contiformer.data.catalog.registry import DATASETS, DatasetInfo, FileForm, Source
from tests.data.catalog.test_download import Site, serving


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CONTIFORMER_DATA", raising=False)
    return tmp_path / "contiformer"


def _run(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("words", [(), ("list",)])
def test_the_list_has_every_set(words):
    result = _run(*words)
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert lines.keys() == DATASETS.keys()
    for name, info in DATASETS.items():
        assert f" {info.task} " in lines[name]
        assert info.sizes_text() in lines[name]
        assert info.licence in lines[name]
    assert " no " in lines["Libras"]
    assert "www.timeseriesclassification.com" in lines["Libras"]


def test_the_list_marks_sets_on_this_machine(shared):
    lines = {line.split()[0]: line for line in _run().stdout.splitlines()[1:]}
    assert " yes " in lines["Libras"]
    assert str(shared / "uea" / "Libras") in lines["Libras"]
    assert " part " in lines["Heartbeat"]
    assert " no " in lines["Epilepsy"]


def test_the_list_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = re.sub(r"\x1b\[[0-9;]*m", "", _run().stdout)
    assert max(map(len, text.splitlines())) <= 80
    for name, info in DATASETS.items():
        assert re.search(rf"^{name} +{info.task} ", text, re.M)
    assert "train 180, test 180, length 45" in text


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("terminal", ["", "1"])
def test_names_of_backbones_are_never_cut(monkeypatch, width, terminal):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", terminal)
    text = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(main.app, ["backbones"]).stdout)
    for name, kind in BACKBONES.items():
        assert re.search(rf"^{name} +(yes|no|as an option) ", text, re.M)
        assert kind.citation in " ".join(text.split())
    assert "…" not in text


def test_the_list_needs_neither_torch_nor_polars():
    code = (
        "import sys; from typer.testing import CliRunner; from contiformer.cli.datasets import app; "
        "assert CliRunner().invoke(app, []).exit_code == 0; "
        "print([m for m in ('torch', 'polars', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_info_of_a_set_on_this_machine(shared):
    result = _run("info", "libras")
    assert result.exit_code == 0
    assert "https://www.timeseriesclassification.com/aeon-toolkit/Libras.zip" in result.stdout
    assert "not known; recorded on the first download" in result.stdout
    assert "8,100" in result.stdout  # points of the summary: 180 series of 45


def test_info_of_a_missing_set():
    result = _run("info", "Epilepsy")
    assert result.exit_code == 0
    assert "lengths" not in result.stdout


@pytest.mark.parametrize("command", ["info", "download", "verify"])
def test_an_unknown_name_is_one_line_with_a_suggestion(command):
    result = _run(command, "PenDigit")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "did you mean 'PenDigits'?" in result.stderr
    assert not result.stdout


def test_verify(shared):
    result = _run("verify", "Libras")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["ok", "ok"]


def test_verify_finds_a_broken_file(cache):
    folder = cache / "uea" / "Libras"
    folder.mkdir(parents=True)
    (folder / "Libras_TRAIN.ts.gz").write_bytes(b"broken")
    result = _run("verify", "Libras")
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong")


def test_verify_of_a_missing_set():
    result = _run("verify", "Libras")
    assert result.exit_code == 1
    assert "Libras is not here" in result.stderr


def test_set_without_direct_download_is_rejected():
    result = _run("download", "MIMIC-II")
    assert result.exit_code == 1
    assert "no direct download" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_download(cache, tmp_path, monkeypatch):
    site = Site()
    with serving(site):
        body = site.files["/data.bin"]
        source = Source(f"{site.url}/data.bin", "x/data.bin", hashlib.sha256(body).hexdigest())
        info = DatasetInfo(
            "Tiny", "events", {"bytes": len(body)}, "none", "x", (FileForm(("x/data.bin",)),), "a:b", (source,)
        )
        monkeypatch.setitem(DATASETS, "Tiny", info)
        result = _run("download", "Tiny")
        assert result.exit_code == 0
        assert result.stdout.strip() == str(cache / "x")
        assert (cache / "x" / "data.bin").read_bytes() == body
        result = _run("download", "tiny", "--to", str(tmp_path / "there"))
        assert (tmp_path / "there" / "x" / "data.bin").read_bytes() == body
        assert _run("verify", "Tiny").stdout.startswith("ok")
        wrong = DatasetInfo(**{**vars(info), "sources": (Source(source.url, source.target, "0" * 64),)})
        monkeypatch.setitem(DATASETS, "Tiny", wrong)
        result = _run("download", "Tiny", "--to", str(tmp_path / "elsewhere"))
        assert result.exit_code == 1
        assert "sha256" in result.stderr

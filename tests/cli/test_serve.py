"""Wrong uses of ``contiformer serve``: one clear line."""

import builtins
import socket

import pytest

from tests.cli.conftest import run

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from contiformer.cli.serve import application


def error(code, *words):
    result = run("serve", *words)
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_folders_without_a_model(tmp_path, classified):
    assert "there is no such folder" in error(1, tmp_path / "no", "--port", 0)
    assert "no model is saved here" in error(1, tmp_path, "--port", 0)
    folder = classified[0]
    assert "given twice" in error(1, folder, folder, "--port", 0)
    assert run("serve").exit_code == 2


def test_other_hosts_need_a_token(tmp_path, classified):
    assert "--token-file" in error(2, classified[0], "--host", "0.0.0.0")
    token = tmp_path / "token"
    assert "no such file" in error(1, classified[0], "--host", "0.0.0.0", "--token-file", token).lower()
    for text in ("short", "two words of many letters", "line-of-many-letters\nline-of-many-letters"):
        token.write_text(text)
        assert "a token is one word" in error(1, classified[0], "--host", "0.0.0.0", "--token-file", token)


def test_ports_in_use(classified):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = error(1, classified[0], "--port", taken.getsockname()[1])
    assert "cannot listen on 127.0.0.1" in said
    assert "choose another with --port" in said


def test_without_the_extra(monkeypatch, classified):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "uvicorn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "serving needs uvicorn, which is an extra: pip install 'contiformer[serve]'" in error(1, classified[0])


def test_data_to_explore(classified, interpolated, table, tmp_path, capsys):
    app = application([classified[0], interpolated], str(table))
    assert [len(model.data) for model in app.state.models.values()] == [24, 24]
    assert application([classified[0]], None).state.models["classified"].data is None
    assert "there is no such file" in error(1, classified[0], "--data", tmp_path / "no.csv", "--port", 0)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert "there is no column" in error(1, classified[0], "--data", other, "--port", 0)

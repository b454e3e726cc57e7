"""Wrong uses of ``contiformer serve``: one clear line."""

import builtins
import socket

import pytest

from tests.cli.conftest import run

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from fastapi.testclient import TestClient

from contiformer.cli.serve import application
from contiformer.serving import Limits


def error(code, *words):
    result = run("serve", *words)
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_limits_are_options(classified, monkeypatch):
    started = []
    monkeypatch.setattr("contiformer.serving.server.answer_requests", lambda *given: started.append(given))
    sizes = {"rows": 90, "series": 80, "length": 70, "times": 60, "streams": 50, "queue": 40, "batch": 30}
    words = [word for name, size in sizes.items() for word in (f"--max-{name}", size)]
    run("serve", classified[0], "--port", 0, "--max-body", 32, "--timeout", 2.5, *words)
    [(app, bound, limits)] = started
    bound.close()
    assert limits == Limits(body_bytes=32 * 2**20, waiting_bytes=256 * 2**20, deadline=2.5, **sizes)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/schema").json()["limits"]["length"] == 70
        too_many = client.post("/predict", json={"records": [{"time": 0}] * 91})
        assert too_many.status_code == 413
        assert "at most 90 are allowed" in too_many.json()["detail"]


def test_limits_are_positive(classified):
    assert "--max-length" in error(2, classified[0], "--max-length", 0)


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

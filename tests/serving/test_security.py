"""Requests of strangers: hosts, origins, tokens, compressed, deep and slow bodies, names in answers, files."""

import asyncio
import base64
import gzip
import json
import logging

import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from contiformer.serving import Limits, create_app
from tests.serving.conftest import URL
from tests.serving.problems import of

TOKEN = "a-secret-of-many-letters"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def locked(runs):
    """A client of a server with a token, which it does not send."""
    with TestClient(create_app([runs["classes"]], token=TOKEN), base_url=URL) as found:
        yield found


def test_only_names_of_this_machine_are_answered(client):
    for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"):
        assert client.get("/schema", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a@localhost@b", "[::1", "0"):
        found = client.get("/schema", headers={"Host": host})
        assert found.status_code == 421, host
        assert "models" not in found.text


def test_any_name_is_answered_where_others_may_reach_the_server(runs):
    with TestClient(create_app([runs["classes"]], token=TOKEN, hosts=None), base_url="http://model.example") as found:
        assert found.get("/schema").status_code == 401
        assert found.get("/schema", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_pages_of_other_sites_are_refused(client, rows):
    for origin in ("http://evil.example", "null", "http://localhost:9999", "https://localhost.evil.example"):
        found = client.post("/predict?model=classes", json={"records": rows}, headers={"Origin": origin})
        assert found.status_code == 403
        assert "access-control-allow-origin" not in found.headers
    assert client.get("/schema", headers={"Origin": URL}).status_code == 200
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert client.options("/predict", headers=asked).status_code in (403, 405)


def test_tokens(locked, rows):
    right = [f"Bearer {TOKEN}", f"bearer {TOKEN}", "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()]
    for header in right:
        assert locked.get("/schema", headers={"Authorization": header}).status_code == 200
    wrong = [
        "",
        TOKEN,
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Basic !",
        "Basic " + TOKEN,
        "Bearer \xe4",
    ]
    for header in wrong:
        for path in ("/schema", "/metrics", "/openapi.json", "/", "/static/x.js", "/nothing", "/health/"):
            found = locked.get(path, headers={"Authorization": header.encode("latin-1")})
            assert found.status_code == 401, (header, path)
            assert "Basic" in found.headers["www-authenticate"]
    assert locked.post("/predict", json={"records": rows}).status_code == 401
    assert locked.get("/schema", params={"token": TOKEN}).status_code == 401
    assert locked.get("/health").json() == {"status": "ok", "models": 1}


def test_headers_of_every_answer(client):
    for path in ("/health", "/nothing", "/predict"):
        found = client.get(path)
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert "server" not in found.headers


def test_compressed_bodies_are_refused(client):
    bomb = gzip.compress(b" " * 10**7)
    for encoding in ("gzip", "deflate", "br", "zstd", "identity, gzip"):
        found = client.post("/predict?model=classes", content=bomb, headers={**JSON, "Content-Encoding": encoding})
        assert found.status_code == 415


def test_deep_json_is_refused(client):
    for body in ("[" * 100_000, '{"records":' * 50_000, '{"records": [{"x": ' + "[" * 5000 + "]" * 5000 + "}]}"):
        found = client.post("/predict?model=classes", content=body, headers=JSON)
        assert found.status_code == 422
        assert len(found.text) < 500


def test_names_in_answers_are_json_only(client, rows):
    """The channel is called <script>, and so may be ids."""
    wild = [{**row, "who": "<img src=x onerror=alert(1)>\x1b[2J\n\u2028"} for row in of(rows, who="p0")]
    found = client.post("/predict?model=curves", json={"records": wild})
    assert found.status_code == 200
    assert found.headers["content-type"] == "application/json"
    assert list(found.json()["predictions"]) == [wild[0]["who"]]
    assert found.text.isascii()
    assert "\x1b" not in found.text


def test_control_characters_in_errors_are_written_out(client, rows):
    body = {"records": [{**rows[0], "t": "\x1b[2J\x00"}]}
    found = client.post("/predict?model=classes", json=body)
    assert found.status_code == 422
    assert found.json()["detail"].isprintable()
    found = client.get("/schema", params={"model": "\x1b[2J\r\nSet-Cookie: a=b"})
    assert found.status_code == 404
    assert found.json()["detail"].isprintable()
    assert "set-cookie" not in found.headers


def test_no_request_names_a_file(client, rows, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("who,t,x,<script>\nhidden,0,1,1\n")
    for path in (
        f"/{secret}",
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/static/../../app.py",
        "/%2e%2e/app.py",
    ):
        found = client.get(path)
        assert found.status_code == 404, path
        assert "root:" not in found.text
    for name in (str(secret), "../classes", "/etc", "classes/../sizes", "classes\x00"):
        assert client.post("/predict", params={"model": name}, json={"records": rows}).status_code == 404
    words = [{**row, "who": str(secret)} for row in of(rows, who="p0")]
    found = client.post("/predict?model=classes", json={"records": words})
    assert list(found.json()["predictions"]) == [str(secret)]
    found = client.post("/predict?model=classes", content=str(secret).encode(), headers={"Content-Type": "text/csv"})
    assert found.status_code == 422
    assert "hidden" not in found.text


def test_answers_never_hold_nan(client, monkeypatch, rows):
    """Whatever a model says, JSON has null for it."""
    model = client.app.state.models["sizes"]
    monkeypatch.setattr(model.estimator, "predict", lambda data: np.full(len(data), float("nan")))
    found = client.post("/predict?model=sizes", json={"records": rows})
    assert found.status_code == 200
    strict = json.loads(found.text, parse_constant=pytest.fail)
    assert strict["predictions"]["p0"] == {"value": None}


def test_failures_of_the_server_tell_nothing_and_end_nothing(client, monkeypatch, rows, caplog):
    model = client.app.state.models["sizes"]

    def fail(_):
        raise RuntimeError("patient 4711 at /home/someone")

    caplog.set_level(logging.INFO, "contiformer.serving")
    with monkeypatch.context() as patched:
        patched.setattr(model.estimator, "predict", fail)
        found = client.post("/predict?model=sizes", json={"records": rows})
    assert found.status_code == 500
    assert "4711" not in found.text
    assert "4711" not in caplog.text
    assert "RuntimeError" in caplog.text
    assert client.post("/predict?model=sizes", json={"records": rows}).status_code == 200


def test_the_log_has_a_line_for_each_request_and_no_data(client, caplog, rows):
    caplog.set_level(logging.INFO, "contiformer.serving")
    wild = [{**row, "who": "patient-4711"} for row in rows]
    client.post("/predict?model=classes&secret=4711", json={"records": wild})
    client.post("/predict?model=classes", json={"records": [{**rows[0], "t": "4711 noon"}]})
    client.get("/events/patient-4711")
    client.get("/patient-4711")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("contiformer")]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "POST /predict 200",
        "POST /predict 422",
        "GET /events/{stream} 404",
        "GET (other) 404",
    ]
    assert "4711" not in caplog.text


def asgi(app, receive, headers=()):
    """The status of a request whose body comes from ``receive``."""
    statuses = []
    names = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": names}

    async def send(message):
        statuses.append(message.get("status"))

    async def go():
        await app({**scope, "http_version": "1.1", "scheme": "http", "root_path": ""}, receive, send)

    asyncio.run(go())
    return statuses[0]


def test_slow_bodies_are_given_up(runs):
    app = create_app([runs["classes"]], limits=Limits(body_seconds=0.1))

    async def never():
        await asyncio.sleep(60)

    async def drop_by_drop():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    assert asgi(app, never) == 408
    assert asgi(app, drop_by_drop) == 408


def test_bodies_are_refused_while_they_are_read(runs):
    app = create_app([runs["classes"]], limits=Limits(body_bytes=10_000, waiting_bytes=25_000))
    read = 0

    async def endless():
        nonlocal read
        read += 1000
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    assert asgi(app, endless) == 413
    assert read == 11_000
    # a length that is a lie, too long, or no number
    for length in (b"99999999", b"9" * 5000, b"-1", b"ten"):
        read = 0
        assert asgi(app, endless, [(b"content-length", length)]) == 413
        assert read == 0


def test_all_bodies_together_are_bounded(runs):
    app = create_app([runs["classes"]], limits=Limits(waiting_bytes=10_000, body_seconds=0.5))
    big = [{"type": "http.request", "body": b"x" * 9000, "more_body": True}]

    async def two():
        async def held():
            if big:
                return big.pop()
            await asyncio.sleep(60)

        async def other():
            return {"type": "http.request", "body": b"x" * 2000, "more_body": False}

        statuses = {}

        def sender(name):
            async def send(message):
                statuses.setdefault(name, message.get("status"))

            return send

        scope = {
            **{"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "http_version": "1.1"},
            **{"scheme": "http", "root_path": ""},
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        first = asyncio.create_task(app(dict(scope), held, sender("held")))
        await asyncio.sleep(0.1)
        await app(dict(scope), other, sender("other"))
        await first
        await app(dict(scope), other, sender("after"))
        return statuses

    assert asyncio.run(two()) == {"other": 503, "held": 408, "after": 422}


def test_websockets_are_not_answered(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/predict"):
        pass

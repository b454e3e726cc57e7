"""A server in a process of its own: start, SIGTERM, ports, slow clients, and too many requests."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from tests.serving.problems import orders, waves, without

ROWS = without(waves(3, seed=1), "kind", "size", "later")
#: The command line, with limits that the tests reach; "slow" makes every inference last 0.4 seconds.
PROGRAM = """
import sys, time
import contiformer.serving.limits as limits
from contiformer.serving import answers

class Little(limits.Limits):
    def __init__(self, **given):
        super().__init__(**given, head_seconds=0.5, body_seconds=0.5)

limits.Limits = Little
if sys.argv.pop(1) == "slow":
    import contiformer.serving.predictions as predictions
    at_once = predictions.answers
    def slowly(*given):
        time.sleep(0.4)
        return at_once(*given)
    predictions.answers = slowly
from contiformer.cli.main import app
app()
"""


class Server:
    """A running server."""

    def __init__(self, *words, speed="fast"):
        command = [sys.executable, "-c", PROGRAM, speed, "serve", *map(str, words), "--port", "0"]
        command += ["--max-queue", "4", "--timeout", "20"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines = []
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.ready.wait(60), self.lines

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if "serving on" in line:
                self.url = line.split()[2]
                self.port = int(self.url.rsplit(":", 1)[1])
                self.ready.set()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def started():
    servers = []

    def start(*words, **options):
        servers.append(Server(*words, **options))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()


def ask(url, **more):
    return httpx.post(f"{url}/predict", params={"model": "classes"}, json={"records": ROWS}, timeout=30, **more)


def test_a_server_from_its_start_to_sigterm(started, runs):
    server = started(runs["classes"], runs["orders"])
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok", "models": 2}
    first = ask(server.url)
    assert list(first.json()["predictions"]) == ["p0", "p1", "p2"]
    event = {key: orders(1)[0][name] for key, name in (("time", "hour"), ("type", "action"))}
    assert httpx.post(f"{server.url}/events/a", json=event).status_code == 200
    assert "server" not in first.headers
    # the port is taken now
    again = [sys.executable, "-m", "contiformer.cli.main", "serve", runs["classes"], "--port", str(server.port)]
    second = subprocess.run(again, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert len(second.stderr.splitlines()) == 1
    assert "--port" in second.stderr
    assert server.stop() == 0
    requests = [line for line in server.lines if "POST /predict 200" in line]
    assert len(requests) == 1
    assert "Traceback" not in "\n".join(server.lines)
    assert not any("p0" in line for line in server.lines)


def test_sigterm_finishes_what_is_running(started, runs):
    server = started(runs["classes"], speed="slow")
    found = {}
    asking = threading.Thread(target=lambda: found.update(answer=ask(server.url)))
    asking.start()
    time.sleep(0.2)
    assert server.stop() == 0
    asking.join(30)
    assert found["answer"].status_code == 200
    with pytest.raises(httpx.ConnectError):
        ask(server.url)


def test_overload_is_told_and_passes(started, runs):
    """One is computed, four wait, the others are sent away; afterwards all is as before."""
    server = started(runs["classes"], speed="slow")
    ask(server.url)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(server.url))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    statuses = sorted(one.status_code for one in answers)
    assert set(statuses) == {200, 503}
    assert statuses.count(503) >= 1
    assert statuses.count(200) >= 5
    assert all(one.headers["retry-after"] == "1" for one in answers if one.status_code == 503)
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert ask(server.url).status_code == 200
    counts = httpx.get(f"{server.url}/metrics").text
    assert f'contiformer_errors_total{{route="/predict",status="503"}} {statuses.count(503)}' in counts


def until_closed(connection):
    connection.settimeout(10)
    data = b""
    while True:
        part = connection.recv(65536)
        if not part:
            return data
        data += part


def test_slow_clients_are_let_go(started, runs):
    server = started(runs["classes"])
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent in (b"", b"POST /pre", head):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            began = time.monotonic()
            connection.sendall(sent)
            assert until_closed(connection) == b""
            assert time.monotonic() - began < 8
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head + b'Content-Length: 100\r\n\r\n{"records"')
        assert until_closed(connection).startswith(b"HTTP/1.1 408")
    # nonsense, a head without end, and a body in two lengths
    for sent in (
        b"\x16\x03\x01\x02\x00\n\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000,
        head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            try:
                connection.sendall(sent)
                assert until_closed(connection).startswith((b"HTTP/1.1 400", b""))
            except ConnectionError:
                pass
    assert ask(server.url).status_code == 200


def test_connections_are_used_again_after_a_refusal(started, runs):
    server = started(runs["classes"])
    with httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            assert client.post("/predict", json={}).status_code == 422
            assert client.post("/predict", json={"records": ROWS}).status_code == 200
    big = json.dumps({"records": [], "padding": "x" * (17 * 2**20)})
    found = httpx.post(f"{server.url}/predict", content=big, headers={"Content-Type": "application/json"})
    assert found.status_code == 413

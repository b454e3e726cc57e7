"""Throughput and latency of ``contiformer serve`` under load, beside the estimator called directly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.machine import machine_facts
from contiformer import Classifier, TrainingOptions

CLIENTS = (1, 8, 64)
SECONDS = 60.0
#: Different series that are sent in turn, and their size.
SERIES, POINTS, CHANNELS = 64, 50, 3
BATCH = 64
#: Seconds of direct calls, and of the load before the first measurement, in which the allocator's pools grow.
_BRIEF = 10.0
#: Samples of the server's memory in each measurement.
SAMPLES = 12
_START = 120.0


def run(
    seconds: float = SECONDS, clients: Sequence[int] = CLIENTS, notify: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """All measurements: direct calls first, then the server with each number of clients.

    Args:
        seconds: for each number of clients; at most 10 for direct calls.
        clients: how many ask at the same time, each the next question when the last one is answered.
        notify: is told what is measured.
    """
    tables = [series(n) for n in range(SERIES)]
    with tempfile.TemporaryDirectory() as folder:
        run_folder = Path(folder) / "waves"
        model = trained(tables)
        model.save(run_folder)
        direct = {}
        brief = min(seconds, _BRIEF)
        for name, batches in (("one by one", [[table] for table in tables]), (f"batches of {BATCH}", [tables])):
            notify(f"direct calls, {name}: {brief:g} s")
            direct[name] = call(model, batches, brief)
        expected = model.predict_proba(tables[0]).row(0)[1:]
        with server(run_folder) as (port, process):
            bodies = [request(table) for table in tables]
            answer = json.loads(asyncio.run(load(port, bodies[:1], 1, 0.0)).last)
            said = list(answer["predictions"]["0"]["probabilities"].values())
            if not np.allclose(said, expected, atol=1e-5):
                raise RuntimeError(f"the server said {said}, the model says {expected}")
            notify(f"warming up: {brief:g} s")
            asyncio.run(load(port, bodies, max(clients), brief))
            memory = {}
            served = {}
            for count in clients:
                notify(f"{count} clients: {seconds:g} s")
                with watched_memory(process.pid, seconds / SAMPLES) as memory[str(count)]:
                    served[str(count)] = asyncio.run(load(port, bodies, count, seconds)).summary()
    return {
        "machine": machine_facts(),
        "model": {"estimator": "Classifier", "d_model": model.d_model, "points": POINTS, "channels": CHANNELS},
        "seconds": seconds,
        "direct": direct,
        "clients": served,
        "memory_mb": memory,
    }


def series(number: int) -> pl.DataFrame:
    """One irregular series as a table."""
    draw = np.random.default_rng(number)
    times = np.cumsum(draw.uniform(0.1, 0.3, POINTS)).round(4)
    values = {f"x{c}": np.sin(times * (1 + number % 2) + c) + 0.1 * draw.normal(size=POINTS) for c in range(CHANNELS)}
    return pl.DataFrame({"id": [number] * POINTS, "time": times, **values})


def trained(tables: Sequence[pl.DataFrame]) -> Classifier:
    """A classifier of the default size; how well it classifies does not matter for its speed."""
    quick = TrainingOptions(max_epochs=1, min_steps=0, verbose=0)
    labels = {n: ("slow", "fast")[n % 2] for n in range(len(tables))}
    return Classifier(training=quick).fit(pl.concat(tables), labels, id="id", time="time")


@dataclass
class Timed:
    """Answers that were waited for."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    series: int = 0
    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    last: bytes = b""

    def summary(self) -> dict[str, Any]:
        """Throughput, and quantiles of the time to an answer."""
        waits = np.array(self.seconds) * 1000
        lasted = self.ended - self.began
        return {
            "requests": len(waits),
            "errors": self.errors,
            "series_per_second": round(self.series / lasted, 2),
            "p50_ms": round(float(np.quantile(waits, 0.5)), 3),
            "p99_ms": round(float(np.quantile(waits, 0.99)), 3),
            "max_ms": round(float(waits.max()), 3),
        }


def call(model: Classifier, batches: Sequence[Sequence[pl.DataFrame]], seconds: float) -> dict[str, Any]:
    """The estimator itself on the same tables."""
    tables = [pl.concat(batch) for batch in batches]
    model.predict_proba(tables[0])
    found = Timed()
    while time.perf_counter() - found.began < seconds or not found.seconds:
        n = len(found.seconds) % len(tables)
        began = time.perf_counter()
        model.predict_proba(tables[n])
        found.seconds.append(time.perf_counter() - began)
        found.series += len(batches[n])
    found.ended = time.perf_counter()
    return found.summary()


def request(table: pl.DataFrame) -> bytes:
    """A request for one series."""
    body = json.dumps({"records": table.to_dicts()}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def load(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> Timed:
    """Ask as so many clients, each on a connection of its own, until the time is over; each asks at least once."""
    found = Timed()

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = number
        try:
            while True:
                began = time.perf_counter()
                writer.write(requests[turn % len(requests)])
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len"))
                found.last = await reader.readexactly(length)
                found.seconds.append(time.perf_counter() - began)
                if head.startswith(b"HTTP/1.1 200"):
                    found.series += 1
                else:
                    found.errors += 1
                turn += clients
                if time.perf_counter() - found.began >= seconds:
                    return
        except (OSError, EOFError, StopIteration):
            found.errors += 1
        finally:
            writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    found.ended = time.perf_counter()
    return found


@contextmanager
def server(run_folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The server as users start it, and its port."""
    command = [sys.executable, "-m", "contiformer.cli.main", "serve", str(run_folder), "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log, text=True)
        try:
            yield _port(process, log), process
        finally:
            process.terminate()
            process.wait(_START)


def _port(process: subprocess.Popen[str], log: Any) -> int:
    ends = time.monotonic() + _START
    while time.monotonic() < ends and process.poll() is None:
        log.seek(0)
        line = next((line for line in log.read().splitlines() if line.startswith("serving on http://")), None)
        if line is not None:
            return int(line.split()[2].rsplit(":", 1)[1])
        time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"the server did not start: {log.read().strip()}")


@contextmanager
def watched_memory(process: int, every: float) -> Iterator[list[float]]:
    """Samples of the memory of a process, one at the start and then one every so many seconds."""
    samples: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every if samples else 0.0):
            samples.extend(filter(None, [resident_mb(process)]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def resident_mb(process: int) -> float | None:
    """Memory of a process; None where ``ps`` does not tell."""
    try:
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True)
        return round(int(done.stdout) / 1024, 1)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Measurement, series per second, median, 99 %, errors, as text; then the memory of the server."""
    named = [(f"direct, {name}", found) for name, found in document["direct"].items()]
    named += [(f"server, {name} clients", found) for name, found in document["clients"].items()]
    lines = [
        (
            name,
            f"{found['series_per_second']:,.0f}",
            f"{found['p50_ms']:.1f} ms",
            f"{found['p99_ms']:.1f} ms",
            str(found["errors"]),
        )
        for name, found in named
    ]
    memory = [
        (f"memory, {name} clients", f"{low:.0f} to {high:.0f} MB", "", "", "")
        for name, (low, high) in extremes(document["memory_mb"]).items()
    ]
    return [*lines, *memory]


def extremes(memory: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """The lowest and highest sample of each measurement that has some."""
    return {name: (min(samples), max(samples)) for name, samples in memory.items() if samples}

"""Run cells: finished ones are never run again, and a kill loses at most the running cell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta

import torch

from benchmarks.machine import machine_facts
from reproduction.experiments import Cell, Experiment
from reproduction.store import Row, Store

Notify = Callable[[str], None]
_LOOK = 0.2


@dataclass
class Tally:
    """Counts of cells by what became of them."""

    done: int = 0
    before: int = 0
    elsewhere: int = 0
    absent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """The counts that are not zero."""
        counts = {
            "run": self.done,
            "finished before": self.before,
            "being run elsewhere": self.elsewhere,
            "without data": len(self.absent),
            "failed": len(self.failed),
        }
        said = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        return f"cells: {said or 'none'}"


def shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """Every ``parts``-th cell from the ``part``-th on, counted from 1: a grid over several machines."""
    if not 1 <= part <= parts:
        raise ValueError(f"the part must be from 1 to {parts}, got {part}")
    return list(cells[part - 1 :: parts])


def run_cells(
    experiment: Experiment, cells: Sequence[Cell], store: Store, *, verbose: int = 0, notify: Notify = print
) -> Tally:
    """Run unfinished and stale cells one after the other, each written as soon as it is there.

    Args:
        experiment: of the cells.
        cells: which, in this order.
        store: of the results; other processes may work on the same cells.
        verbose: 1: show each training.
        notify: told of each cell.
    """
    tally, clock = Tally(), _Clock(experiment, cells, store)
    for number, cell in enumerate(cells):
        reason = experiment.absent(cell)
        if is_done(experiment, cell, store):
            tally.before += 1
            continue
        if reason is not None:
            tally.absent.append(f"{cell}: {reason}")
            continue
        with store.claim(cell) as mine:
            done = is_done(experiment, cell, store)
            if done or not mine:
                tally.before += done
                tally.elsewhere += not done
                continue
            try:
                row = _run_cell(experiment, cell, store, verbose)
            except Exception as error:  # one that fails, for whatever reason, must not keep the others from being run
                tally.failed.append(f"{cell}: {_in_one_line(error)}")
                notify(f"failed: {tally.failed[-1]}")
                continue
        tally.done += 1
        took = f"taken from {row['taken_from']}" if "taken_from" in row else f"{row['seconds']:.0f} s"
        notify(f"{cell}: {_headline(experiment, row)}{took}{clock.wait(number + 1)}")
    return tally


def is_done(experiment: Experiment, cell: Cell, store: Store) -> bool:
    """Whether there is a result that is not stale."""
    row = store.read(cell)
    return row is not None and experiment.stale(row) is None


class _Clock:
    """Estimate of the remaining time, at the pace of all processes that work on these cells."""

    def __init__(self, experiment: Experiment, cells: Sequence[Cell], store: Store) -> None:
        self._experiment, self._store, self._began = experiment, store, time.perf_counter()
        self._runnable = [experiment.absent(cell) is None for cell in cells]
        self._cells = cells
        self._at_first = self._left(0)

    def wait(self, start: int) -> str:
        """Number of cells from this one on, and the time for them."""
        left = self._left(start)
        if not left:
            return ""
        each = (time.perf_counter() - self._began) / max(1, self._at_first - left)
        return f", {left} left, about {timedelta(seconds=round(left * each))}"

    def _left(self, start: int) -> int:
        pairs = zip(self._cells[start:], self._runnable[start:], strict=True)
        return sum(runnable and not is_done(self._experiment, cell, self._store) for cell, runnable in pairs)


def _headline(experiment: Experiment, row: Row) -> str:
    """The first metric, where the cell has it."""
    key = experiment.metrics[0] if experiment.metrics else None
    return f"{key.label} {row['metrics'][key.key]:{key.form}}, " if key and key.key in row["metrics"] else ""


def _in_one_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"


def _run_cell(experiment: Experiment, cell: Cell, store: Store, verbose: int) -> Row:
    for twin in experiment.twins(cell):
        row = store.read(twin)
        if row is not None and experiment.stale(row) is None:
            row = {name: value for name, value in row.items() if name not in asdict(cell)}
            # where the twin was taken from another, that one was trained
            row = {"taken_from": str(twin), **row}
            store.write(cell, row)
            return row
    began = time.perf_counter()
    torch.manual_seed(cell.seed)
    outcome = experiment.run(cell, store.budget, verbose)
    row = {
        "version": experiment.version,
        "metrics": outcome.metrics,
        "details": outcome.details,
        "budget": store.budget,
        "configuration": outcome.configuration,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine_facts(),
    }
    store.write(cell, row)
    return row


def run_side_by_side(words: Sequence[str], jobs: int) -> int:
    """The same command in several processes, which share the cells among them by their claims.

    Ctrl-C and SIGTERM end them all, and lose at most the cells that they were running.

    Args:
        words: the arguments of ``python -m reproduction``.
        jobs: number of processes; each has its share of the cores unless ``OMP_NUM_THREADS`` says otherwise.

    Returns:
        0 if all of them succeeded, else the exit code of one that did not.
    """
    environment = {"OMP_NUM_THREADS": str(max(1, _cores() // jobs)), **os.environ}
    command = [sys.executable, "-m", "reproduction", *words]
    workers: list[subprocess.Popen[bytes]] = []
    with _sigterm_exits():
        try:
            for _ in range(jobs):
                workers.append(subprocess.Popen(command, env=environment))
            # looking from time to time: a signal that comes just before a wait without end would not be noticed
            while any(worker.poll() is None for worker in workers):
                time.sleep(_LOOK)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    # one that was killed has a negative code
    return next((abs(worker.returncode) for worker in workers if worker.returncode), 0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _sigterm_exits() -> Iterator[None]:
    """By an exception, so that the processes that were started are ended too."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

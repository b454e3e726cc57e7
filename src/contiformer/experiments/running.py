"""Running cells: what is finished is never run again, and a kill loses at most the cell that was running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch

from contiformer.benchmarks.machine import machine_facts
from contiformer.data.errors import DataError
from contiformer.experiments.cell import Cell
from contiformer.experiments.experiment import Experiment
from contiformer.experiments.store import Store

Notify = Callable[[str], None]
_LOOK = 1.0


@dataclass
class Tally:
    """What became of the cells that were asked for."""

    done: int = 0
    before: int = 0
    elsewhere: int = 0
    absent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """Every ``parts``-th cell from the ``part``-th on, counted from 1: a grid over several machines."""
    if not 1 <= part <= parts:
        raise ValueError(f"the part must be from 1 to {parts}, got {part}")
    return list(cells[part - 1 :: parts])


def run_cells(
    experiment: Experiment, cells: Sequence[Cell], store: Store, *, verbose: int = 0, notify: Notify = print
) -> Tally:
    """Run what is not finished, one after the other, each written as soon as it is there.

    Args:
        experiment: whose cells they are.
        cells: which, in this order.
        store: where results lie; other processes may work on the same cells.
        verbose: 1: show each training.
        notify: told of each cell.
    """
    tally, began = Tally(), time.perf_counter()
    for number, cell in enumerate(cells):
        reason = experiment.absent(cell)
        if reason is not None:
            tally.absent.append(f"{cell}: {reason}")
            continue
        with store.claim(cell) as mine:
            if not mine:
                tally.before += cell in store
                tally.elsewhere += cell not in store
                continue
            started = time.perf_counter()
            try:
                _run_cell(experiment, cell, store, verbose)
            except (DataError, ValueError, FloatingPointError, MemoryError) as error:
                # one that fails must not keep the others from being run
                tally.failed.append(f"{cell}: {' '.join(str(error).split())}")
                notify(f"failed: {tally.failed[-1]}")
                continue
        tally.done += 1
        row = store.read(cell)
        assert row is not None
        key = experiment.metrics[0]
        said = f"{key.label} {row['metrics'][key.key]:{key.form}}" if key.key in row["metrics"] else ""
        left = sum(other not in store and experiment.absent(other) is None for other in cells[number + 1 :])
        each = (time.perf_counter() - began) / tally.done
        wait = f", {left} left, about {timedelta(seconds=round(left * each))}" if left else ""
        notify(f"{cell}: {said}, {time.perf_counter() - started:.0f} s{wait}")
    return tally


def _run_cell(experiment: Experiment, cell: Cell, store: Store, verbose: int) -> None:
    began = time.perf_counter()
    torch.manual_seed(cell.seed)
    outcome = experiment.run(cell, store.budget, verbose)
    store.write(
        cell,
        {
            "metrics": outcome.metrics,
            "details": outcome.details,
            "budget": store.budget,
            "configuration": outcome.configuration,
            "seconds": round(time.perf_counter() - began, 1),
            "machine": machine_facts(),
        },
    )


def run_side_by_side(command: Sequence[str], cells: Sequence[Cell], store: Store, jobs: int, notify: Notify) -> int:
    """The same command in several processes, which share the cells among them by their claims.

    Returns:
        The exit code of the worst of them.
    """
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    workers = [subprocess.Popen([sys.executable, "-m", *command], env=environment) for _ in range(jobs)]
    began, at_first = time.perf_counter(), sum(cell in store for cell in cells)
    try:
        seen = at_first
        while any(worker.poll() is None for worker in workers):
            time.sleep(_LOOK)
            now = sum(cell in store for cell in cells)
            if now != seen and now < len(cells):
                each = (time.perf_counter() - began) / (now - at_first)
                left = timedelta(seconds=round(each * (len(cells) - now)))
                notify(f"{now} of {len(cells)} cells, about {left} left")
            seen = now
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    return max(worker.returncode for worker in workers)

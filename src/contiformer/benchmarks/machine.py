"""What the numbers of a benchmark depend on besides the code."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from contiformer import __version__
from contiformer.benchmarks.memory import available_mb

#: A machine counts as busy when others use more than this share of its processors.
BUSY_SHARE = 0.5


def machine_facts() -> dict[str, Any]:
    """Processor, threads, versions, date and commit."""
    free = available_mb()
    return {
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "load": load(),
        "free_memory_mb": None if free is None else round(free),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "contiformer": __version__,
        "compiled_kernels": compiled_kernels(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def load() -> float | None:
    """Processes that wanted to run at a time, over the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def busy(seconds: float = 0.5) -> bool:
    """Whether others use this machine so much that times mean little.

    The load of the last minute remembers what this process itself did, so where the system counts the work of its
    processors, it is watched while this process sleeps for so long.
    """
    before = _work_and_time()
    if before is None:
        now, processors = load(), os.cpu_count()
        return now is not None and processors is not None and now > BUSY_SHARE * processors
    time.sleep(seconds)
    after = _work_and_time() or before
    return after[0] - before[0] > BUSY_SHARE * (after[1] - before[1])


def _work_and_time(counters: Path = Path("/proc/stat")) -> tuple[int, int] | None:
    """How long all processors together have worked and have been there, since the start; None outside of Linux."""
    try:
        # user, nice, system, idle, waiting, interrupts (two kinds), stolen by other machines; the rest is counted twice
        ticks = [int(part) for part in counters.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def compiled_kernels() -> bool:
    """Whether the optional kernels in C are there and in use."""
    try:
        native = importlib.import_module("contiformer.native")
        return bool(native.made_for(torch.zeros(1)))
    except (ImportError, AttributeError):
        return False


def cpu_name() -> str:
    """As the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def commit() -> str | None:
    """The commit of the source tree this code lies in, with "+" if files differ from it; None outside one."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(here))  # an installed copy may lie in somebody else's repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None

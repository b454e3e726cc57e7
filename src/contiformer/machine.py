"""Facts about the machine that a measurement depends on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from contiformer.native import made_for

__all__ = ["available_mb", "busy", "compiled_kernels", "cpu_name", "load", "read_kilobytes"]

#: A machine counts as busy when others use more than this share of its processors.
BUSY_SHARE = 0.5


def read_kilobytes(file: Path, name: str) -> int | None:
    """An entry of a file of /proc such as meminfo, None where there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def available_mb() -> float | None:
    """Memory that is free for use, in megabytes."""
    kilobytes = read_kilobytes(Path("/proc/meminfo"), "MemAvailable")
    return None if kilobytes is None else kilobytes / 1024


def load() -> float | None:
    """The load average of the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def busy(seconds: float = 0.5) -> bool:
    """Whether other processes use this machine so much that times mean little.

    The load average includes this process itself, so where the system counts the work of its processors, the counters
    are watched while this process sleeps for so many seconds.
    """
    before = _work_and_time()
    if before is None:
        now, processors = load(), os.cpu_count()
        return now is not None and processors is not None and now > BUSY_SHARE * processors
    time.sleep(seconds)
    after = _work_and_time() or before
    return after[0] - before[0] > BUSY_SHARE * (after[1] - before[1])


def _work_and_time(counters: Path = Path("/proc/stat")) -> tuple[int, int] | None:
    """Ticks that all processors together have worked, and all ticks since the start; None outside of Linux."""
    try:
        # user, nice, system, idle, waiting, interrupts (two kinds), stolen by other machines; the rest is counted twice
        ticks = [int(part) for part in counters.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def compiled_kernels() -> bool:
    """Whether the optional kernels in C are there and in use."""
    return made_for()


def cpu_name() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())

"""What the numbers of a benchmark depend on besides the code."""

from __future__ import annotations

import importlib
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from contiformer import __version__
from contiformer.benchmarks.memory import available_mb


def machine_facts() -> dict[str, Any]:
    """Processor, threads, versions, date and commit."""
    free = available_mb()
    return {
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "free_memory_mb": None if free is None else round(free),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "contiformer": __version__,
        "compiled_sweep": compiled_sweep(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def compiled_sweep() -> bool:
    """Whether the ODEs are solved by the optional compiled code."""
    try:
        native = importlib.import_module("contiformer.native")
        return bool(native.usable(torch.zeros(1)))
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

"""Facts about machine, versions and commit that a measurement depends on."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import contiformer
from contiformer.machine import available_mb, compiled_kernels, cpu_name, load


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
        "contiformer": contiformer.__version__,
        "compiled_kernels": compiled_kernels(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """The commit of the source tree that this code is part of; None outside one.

    A "+" behind it: files under ``src``, or ``pyproject.toml``, differ from the commit.
    """
    here = Path(contiformer.__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(here))  # an installed copy may lie in somebody else's repository
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/pyproject.toml")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None

"""Several processes: which one writes, and a lock on the folder of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contiformer.data.errors import DataError
from contiformer.data.files import locked


def first_process() -> bool:
    """Whether this is the process that writes and speaks, under torchrun, SLURM and Lightning's own launcher."""
    if "RANK" in os.environ:
        return os.environ["RANK"] == "0"
    return all(os.environ.get(name, "0") == "0" for name in ("SLURM_PROCID", "NODE_RANK", "LOCAL_RANK"))


@contextmanager
def alone_in(folder: Path | None) -> Iterator[None]:
    """Hold the lock of a run folder: a second training there is refused. A process that dies lets go."""
    if folder is None or not first_process():
        yield
        return
    with locked(folder / "checkpoints" / "run", wait=False) as free:
        if not free:
            problem = "another process is training in this folder"
            raise DataError(problem, file=folder, remedy="wait until it ends, or choose another folder")
        yield

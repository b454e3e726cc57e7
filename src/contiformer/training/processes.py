"""Processes: which one writes, the lock on the folder of a run, and signals as requests to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

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


#: Ctrl-C, what ``kill`` and schedulers send, and what SLURM sends before the time is up (``--signal=USR1@60``).
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """The user stopped the training; what was reached until then is in the run folder.

    Example:
        >>> from contiformer.training import Interrupted
        >>> issubclass(Interrupted, KeyboardInterrupt), issubclass(Interrupted, Exception)
        (True, False)
    """


class Halt(BaseException):
    """Leaves Lightning's loops, which would make the end of the process out of a KeyboardInterrupt."""


class StopRequest:
    """Whether the user asked to stop; a second signal stops at once."""

    def __init__(self) -> None:
        self.stop = self.at_once = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.stop:
            self.at_once = True
            raise Halt
        self.stop = True

    def listen(self) -> dict[int, Any]:
        """Handle the signals where that is possible: in the main thread. What handled them before."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: signal.signal(number, self.hear) for number in _SIGNALS}


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Signals become a request to stop; a :class:`Halt` that leaves the block becomes :class:`Interrupted`."""
    request = StopRequest()
    before = request.listen()
    try:
        yield request
    except Halt:
        raise Interrupted("stopped at once") from None
    finally:
        for number, handler in before.items():
            # None: it was not set from Python, and cannot be set back from there
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

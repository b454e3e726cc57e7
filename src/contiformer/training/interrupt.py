"""Ctrl-C between steps instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The user stopped the training; what was reached until then is in the run folder."""


class Wish:
    """Whether the user asked to stop. Asking a second time stops at once."""

    def __init__(self) -> None:
        self.stop = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.stop:
            signal.default_int_handler(number, frame)
        self.stop = True


@contextmanager
def listening() -> Iterator[Wish]:
    """Ctrl-C and SIGTERM become a wish while the block runs, where signals can be handled: in the main thread."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

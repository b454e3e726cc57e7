"""Warnings of a call for the client who asked, in a process with several threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CALLS = threading.local()


@contextmanager
def collected() -> Iterator[list[str]]:
    """The warnings of this thread within the block, in one line each, where :func:`collecting` is on."""
    outer = getattr(_CALLS, "texts", None)
    texts: list[str] = []
    _CALLS.texts = texts
    try:
        yield texts
    finally:
        _CALLS.texts = outer


@contextmanager
def collecting() -> Iterator[None]:
    """Give warnings to the call that they come from, and print none: they may hold data."""

    def keep(message: Warning | str, *_: Any, **__: Any) -> None:
        texts = getattr(_CALLS, "texts", None)
        text = " ".join(str(message).split())
        if texts is not None and text not in texts:
            texts.append(text)

    with warnings.catch_warnings():
        # every time, not once: another client has not seen it
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = keep
        yield

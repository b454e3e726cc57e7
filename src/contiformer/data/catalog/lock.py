"""One at a time, also among processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from contiformer.data.errors import DataError


@contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Wait until nobody else works on the target. A process that dies lets go."""
    with _opened(target) as file:
        _lock(file.fileno(), wait=True)
        # closing the file lets go
        yield


@contextmanager
def nobody_else(target: Path) -> Iterator[bool]:
    """Do not wait: tell whether nobody else works on the target; then nobody does until the end of the block.

    A file system without locks knows of nobody: there the answer is always yes.
    """
    with _opened(target) as file:
        try:
            _lock(file.fileno(), wait=False)
        except (BlockingIOError, PermissionError):  # the second on Windows
            free = False
        except OSError:
            free = True
        else:
            free = True
        yield free


def _opened(target: Path) -> IO[str]:
    path = target.with_name(f".{target.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder cannot be made ({error.strerror})", file=path.parent) from None
    try:
        return path.open("a")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=path) from None


def _lock(number: int, *, wait: bool) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        import msvcrt  # noqa: PLC0415 - only on Windows

        msvcrt.locking(number, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(number, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

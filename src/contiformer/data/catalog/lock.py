"""One at a time, also among processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contiformer.data.errors import DataError


@contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Wait until nobody else works on the target. A process that dies lets go."""
    path = target.with_name(f".{target.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder cannot be made ({error.strerror})", file=path.parent) from None
    try:
        file = path.open("a")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=path) from None
    with file:
        _lock(file.fileno())
        # closing the file lets go
        yield


def _lock(number: int) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        import msvcrt  # noqa: PLC0415 - only on Windows

        msvcrt.locking(number, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(number, fcntl.LOCK_EX)

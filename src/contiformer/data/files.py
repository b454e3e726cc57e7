"""Reading and writing files: gzip, encodings, atomic replacement, and errors that say what to do."""

from __future__ import annotations

import errno
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contiformer.data.errors import DataError, PathText

_GZIP = b"\x1f\x8b"
#: A gzip may unpack to this many times its size, and to this many bytes anyway: a bomb must not fill the memory.
LARGEST_FACTOR = 200
ALLOWED_ANYWAY = 2**26
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def read_bytes(path: PathText) -> bytes:
    """The contents of a file, unpacked if they are gzipped; a DataError where it is missing, empty or damaged."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy="check the path") from None
    except IsADirectoryError:
        raise DataError("this is a folder", file=path, remedy="pass a file") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error})", file=path) from None
    if data.startswith(_GZIP):
        data = _unpacked(data, path)
    if not data.strip():
        raise DataError("the file is empty", file=path)
    return data


def _unpacked(data: bytes, path: PathText) -> bytes:
    # the last four bytes tell the length, but only an honest file's: so no more than allowed is unpacked
    allowed = LARGEST_FACTOR * len(data) + ALLOWED_ANYWAY
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            unpacked = packed.read(allowed + 1)
    except EOFError:
        raise DataError("the gzip ends too early", file=path, remedy="download or copy it again") from None
    except (OSError, zlib.error) as error:
        raise DataError(f"the gzip is damaged ({error})", file=path, remedy="download or copy it again") from None
    if len(unpacked) > allowed:
        problem = f"unpacks to more than {LARGEST_FACTOR} times its size, which is no table of numbers"
        raise DataError(problem, file=path, remedy="unpack it first if you trust it")
    return unpacked


def decode(data: bytes, encoding: str, path: PathText) -> str:
    """Decode text; a DataError names the line of the first byte that does not fit."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02x} is not {encoding}"
        other = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin-1"
        raise DataError(problem, file=path, row=row, remedy=f'save it as utf-8, or try encoding="{other}"') from None
    except (LookupError, UnicodeError, ValueError):
        raise DataError(f"there is no encoding {encoding!r}", file=path, remedy='try "utf-8" or "latin-1"') from None


def read_text(path: PathText, encoding: str = "utf-8") -> str:
    """The decoded text of a file, gzipped or not, without a byte order mark."""
    return decode(read_bytes(path), encoding, path).removeprefix("\ufeff")


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder cannot be made ({error.strerror})", file=path) from None


@contextmanager
def locked(target: PathText, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock on a target among processes. A process that dies lets go.

    Yields whether no other process holds it: always True with ``wait``, and on a file system without locks.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - start-up time

    path = Path(target).with_name(f".{Path(target).name}.lock")
    make_folder(path.parent)
    lock = FileLock(path, timeout=-1 if wait else 0)
    free = True
    try:
        lock.acquire()
    except Timeout:
        free = False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise DataError(f"cannot be written ({error.strerror})", file=path) from None
    try:
        yield free
    finally:
        lock.release()


@contextmanager
def write_atomically(path: PathText) -> Iterator[Path]:
    """Replace a file atomically: a reader, or a crash at any moment, finds the old contents or the new ones.

    Yields a path beside the target to write to. At the end of the block that file is flushed to the disk and moved to
    ``path``, and the folder is flushed, too; where the block raises, it is removed, ``path`` stays as it was, and the
    error passes through.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
        sync_folder(target.parent)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder's files to the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: PathText, data: bytes) -> None:
    """Write a file atomically; a DataError where the folder is missing or not writable, or the disk is full."""
    try:
        with write_atomically(path) as partial:
            partial.write_bytes(data)
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise DataError(problem, file=path, remedy="check folder, rights and space") from None


def write_text(path: PathText, text: str, encoding: str = "utf-8") -> None:
    """Write a text file atomically; gzipped when the name ends in ``.gz``."""
    data = text.encode(encoding)
    write_bytes(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)

"""The text in a file, gzipped or not, with errors that say what to do."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from contextlib import suppress
from pathlib import Path

from contiformer.data.errors import DataError

_GZIP = b"\x1f\x8b"
#: A gzip may unpack to this many times its size, and to this many bytes anyway: a bomb must not fill the memory.
LARGEST_FACTOR = 200
ALLOWED_ANYWAY = 2**26


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents, unpacked if they are gzipped, whatever the name ends in.

    Raises:
        DataError: for a file that is missing, a folder, empty, or a gzip that ends too early or is damaged.
    """
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


def _unpacked(data: bytes, path: str | os.PathLike[str]) -> bytes:
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
        raise DataError(
            f"unpacks to more than {LARGEST_FACTOR} times its size, which is no table of numbers",
            file=path,
            remedy="unpack it first if you trust it",
        )
    return unpacked


def decode(data: bytes, encoding: str, path: str | os.PathLike[str]) -> str:
    """Text in the given encoding.

    Raises:
        DataError: with the line of the first byte that does not fit.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"byte 0x{data[error.start]:02x} is not {encoding}", file=path, row=row, remedy='try encoding="latin-1"'
        ) from None
    except (LookupError, UnicodeError, ValueError):
        raise DataError(f"there is no encoding {encoding!r}", file=path, remedy='try "utf-8" or "latin-1"') from None


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Both at once, without a byte order mark."""
    return decode(read_bytes(path), encoding, path).removeprefix("\ufeff")


def write_text(path: str | os.PathLike[str], text: str, encoding: str = "utf-8") -> None:
    """Write so that a reader sees all or nothing; gzipped when the name ends in ``.gz``."""
    target = Path(path)
    data = text.encode(encoding)
    if target.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    write_bytes(target, data)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the target, then move into its place."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, target)
    except OSError as error:
        raise DataError(
            f"cannot be written ({error.strerror})", file=path, remedy="check folder, rights and space"
        ) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)

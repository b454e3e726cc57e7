"""Files out of zip and tar archives from the web: only those wanted, only into one folder, never without end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from contiformer.data.catalog.download import check_space
from contiformer.data.errors import DataError

#: No data set of the catalogue unpacks to more than a part of this.
MOST_BYTES = 8 << 30

_Member = tuple[str, int, Callable[[], IO[bytes] | None]]
# zipfile says NotImplementedError for a compression it does not know, and RuntimeError for an encrypted member
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unpack(archive: Path, folder: Path, wanted: Sequence[str], most_bytes: int = MOST_BYTES) -> list[Path]:
    """Put the members that match one of the patterns into the folder, without the folders they have in the archive.

    A new folder appears when all of it is there; into an existing one the files are moved at the end.

    Args:
        archive: a ``.zip`` or ``.tar.gz``.
        folder: where they go.
        wanted: patterns for the members' paths, as in ``*_TRAIN.ts``; each has to match at least one.
        most_bytes: a bound for all of them together.

    Returns:
        The files, in the order of their names.

    Raises:
        DataError: for an archive that is damaged, lacks what is wanted, or has members that lead out of the folder.
    """
    fresh = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        try:
            with _members(archive) as members:
                chosen = _chosen(archive, members, wanted)
                check_space(fresh, sum(size for _, size, _ in chosen.values()))
                _write(archive, chosen, fresh, most_bytes)
        except _DAMAGED as error:
            raise DataError(
                f"the archive is damaged ({error})", file=archive, remedy="delete it and download it again"
            ) from None
        names = sorted(chosen)
        if not folder.exists():
            os.replace(fresh, folder)
        else:
            for name in names:
                os.replace(fresh / name, folder / name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [folder / name for name in names]


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[list[_Member]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as pack:
            files = [entry for entry in pack.infolist() if not entry.is_dir()]
            yield [(entry.filename, entry.file_size, lambda entry=entry: pack.open(entry)) for entry in files]  # type: ignore[misc]
    else:
        with tarfile.open(archive) as tape:
            regular = [entry for entry in tape if entry.isreg()]
            yield [(entry.name, entry.size, lambda entry=entry: tape.extractfile(entry)) for entry in regular]  # type: ignore[misc]


def _chosen(archive: Path, members: list[_Member], wanted: Sequence[str]) -> dict[str, _Member]:
    chosen: dict[str, _Member] = {}
    unused = set(wanted)
    for member in members:
        path = PurePosixPath(member[0].replace("\\", "/"))
        matching = {pattern for pattern in wanted if fnmatchcase(path.as_posix(), pattern)}
        if not matching:
            continue
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
            raise DataError(f"the member {member[0]!r} leads out of the folder", file=archive, remedy="do not trust it")
        if path.name in chosen:
            raise DataError(f"two members are called {path.name!r}", file=archive)
        chosen[path.name] = member
        unused -= matching
    if unused:
        raise DataError(f"there is no member {sorted(unused)[0]!r}", file=archive, remedy="look into the archive")
    return chosen


def _write(archive: Path, chosen: dict[str, _Member], folder: Path, most_bytes: int) -> None:
    left = most_bytes
    for name, (_, _, opened) in chosen.items():
        stream = opened()
        assert stream is not None  # regular files have contents
        with stream, open(folder / name, "wb") as file:
            while chunk := stream.read(1 << 20):
                left -= len(chunk)
                if left < 0:
                    raise DataError(f"more than {most_bytes:,} bytes come out of it", file=archive)
                file.write(chunk)

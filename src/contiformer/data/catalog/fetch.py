"""A whole data set from its original hosts to the data folder, and the check of what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from contiformer.data.catalog.checksums import STORED
from contiformer.data.catalog.download import download, file_sha256
from contiformer.data.catalog.info import DatasetInfo, Source
from contiformer.data.catalog.lock import only_one
from contiformer.data.catalog.store import cache_folder, find
from contiformer.data.catalog.unpack import unpack
from contiformer.data.errors import DataError
from contiformer.data.readers.text import read_text, write_text

#: Called with the name of the file, the bytes that are here and the bytes there are (None: unknown).
Report = Callable[[str, int, int | None], None]


def fetch(info: DatasetInfo, root: Path | None = None, report: Report | None = None) -> Path:
    """Download all files of a data set, those that are there already excepted.

    Args:
        info: which one.
        root: the data folder; the user's cache by default.
        report: told about every chunk.

    Returns:
        The folder of the data set.
    """
    if not info.sources:
        raise DataError(f"there is no direct download for {info.name}", remedy=info.by_hand)
    base = cache_folder() if root is None else root
    for source in info.sources:
        # several processes that want the same set wait for the first, and find it there
        with only_one((base / source.target).with_name(f"{PurePosixPath(source.target).name}.fetch")):
            _fetch_one(source, base, report)
    return base / info.folder


def _fetch_one(source: Source, base: Path, report: Report | None) -> None:
    name = PurePosixPath(urlsplit(source.url).path).name
    target = base / source.target
    progress = None if report is None else lambda here, total: report(name, here, total)
    if not source.members:
        if not target.exists():
            record = _record(target)
            expected = source.sha256 or _recorded(record).get(target.name)
            try:
                digest = download(source.url, target, expected, progress)
            except DataError as error:
                raise error if source.sha256 or expected is None else _explained(error, record) from None
            write_text(record, f"{digest}  {target.name}\n")
        return
    record = _record(target)
    if all(any(path.match(pattern) for path in target.glob("*")) for pattern in _names(source)) and record.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(name)
    download(source.url, archive, source.sha256, progress)
    files = unpack(archive, target, source.members)
    write_text(record, "".join(f"{file_sha256(file)}  {target.name}/{file.name}\n" for file in files))
    archive.unlink()


def _names(source: Source) -> list[str]:
    return [pattern.rpartition("/")[2] for pattern in source.members]


def _explained(error: DataError, record: Path) -> DataError:
    return DataError(error.problem, remedy=f"{error.remedy}; the sum is that of an earlier download, in {record}")


def verify(info: DatasetInfo) -> list[tuple[Path, str]]:
    """Every file of the set that is there, with ``ok``, ``wrong`` or ``unknown`` for one whose sum nobody recorded.

    A file is held against the sum of the reference copy, of its source, or of its first download.
    """
    sums = {source.target: source.sha256 for source in info.sources if source.sha256 and not source.members}
    results: list[tuple[Path, str]] = []
    for path in dict.fromkeys(path for form in info.forms for path in form.files):
        place = find(path)
        if place is None:
            continue
        if place.is_dir():
            results += _verified_folder(place)
            continue
        stored = path if place.name == PurePosixPath(path).name else str(PurePosixPath(path).with_name(place.name))
        own = _recorded(_record(place)).get(place.name) or _recorded(_record(place.parent)).get(
            f"{place.parent.name}/{place.name}"
        )
        known = {digest for digest in (STORED.get(stored), sums.get(stored), own) if digest}
        results.append((place, "unknown" if not known else "ok" if file_sha256(place) in known else "wrong"))
    return results


def _verified_folder(folder: Path) -> list[tuple[Path, str]]:
    recorded = _recorded(_record(folder))
    if not recorded:
        return [(folder, "unknown")]
    files = [(folder.parent / name, digest) for name, digest in recorded.items()]
    wrong = [path for path, digest in files if not path.exists() or file_sha256(path) != digest]
    return [(path, "wrong") for path in wrong] or [(folder, "ok")]


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _recorded(record: Path) -> dict[str, str]:
    """Name -> sum, from a file as ``sha256sum`` writes it."""
    if not record.exists():
        return {}
    rows = (line.split(maxsplit=1) for line in read_text(record).splitlines() if line.strip())
    return {row[1].lstrip("*"): row[0] for row in rows if len(row) == 2}

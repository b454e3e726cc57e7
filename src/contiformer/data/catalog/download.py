"""Download of data sets from their original hosts: fetch, unpack, record checksums, verify."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

import pooch
import requests

from contiformer.data.catalog.registry import DatasetInfo, Source
from contiformer.data.catalog.storage import cache_folder, find_file
from contiformer.data.errors import DataError, PathText
from contiformer.data.files import locked, make_folder, read_text, write_text

#: Called with the bytes that are here and the bytes there are, None where the server does not say.
DownloadProgress = Callable[[int, int | None], None]
#: No data set of the catalogue unpacks to more than a part of this.
MOST_BYTES = 8 << 30
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_BY_HAND = "check the connection, or download it by hand"
_HEADERS = {"User-Agent": "contiformer", "Accept-Encoding": "identity"}
_Member = tuple[str, int, Callable[[], IO[bytes] | None]]
# zipfile says NotImplementedError for a compression it does not know, and RuntimeError for an encrypted member
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError)


def fetch(info: DatasetInfo, root: Path | None = None, report: Callable[..., None] | None = None) -> Path:
    """Download the files of a data set that are not there, to ``root`` or the user's cache; return its folder.

    ``report`` is called as a :data:`DownloadProgress`, with the name of the file first.
    """
    if not info.sources:
        raise DataError(f"there is no direct download for {info.name}", remedy=info.by_hand)
    base = cache_folder() if root is None else root
    for source in info.sources:
        # several processes that want the same set wait for the first, and find it there
        with locked((base / source.target).with_name(f"{PurePosixPath(source.target).name}.fetch")):
            _fetch_source(source, base, report)
    return base / info.folder


def _fetch_source(source: Source, base: Path, report: Callable[..., None] | None) -> None:
    name = PurePosixPath(urlsplit(source.url).path).name
    target = base / source.target
    record = _record(target)
    progress = None if report is None else lambda here, total: report(name, here, total)
    if not source.members:
        if not target.exists():
            recorded = _recorded(record).get(target.name)
            try:
                digest = download(source.url, target, source.sha256 or recorded, progress)
            except DataError as error:
                if source.sha256 or recorded is None:
                    raise
                remedy = f"{error.remedy}; the sum is that of an earlier download, in {record}"
                raise DataError(error.problem, remedy=remedy) from None
            write_text(record, f"{digest}  {target.name}\n")
        return
    names = [pattern.rpartition("/")[2] for pattern in source.members]
    if all(any(path.match(name) for path in target.glob("*")) for name in names) and record.exists():
        return
    archive = target.with_name(name)
    download(source.url, archive, source.sha256, progress)
    unpacked = unpack(archive, target, source.members)
    write_text(record, "".join(f"{pooch.file_hash(file)}  {target.name}/{file.name}\n" for file in unpacked))
    archive.unlink()


class _GiveUpError(Exception):
    """A DataError that another attempt would repeat. Not a ValueError, after which pooch tries again."""


class _ProgressBar:
    """A progress bar as pooch expects it, which passes on to a function."""

    total = 0

    def __init__(self, progress: DownloadProgress | None) -> None:
        self._progress, self._here = progress, 0

    def update(self, count: int) -> None:
        self._here += count
        if self._progress is not None:
            self._progress(min(self._here, self.total or self._here), self.total or None)

    def reset(self) -> None:
        self._here = 0

    close = reset


def download(
    url: str,
    target: PathText,
    sha256: str | None = None,
    progress: DownloadProgress | None = None,
    *,
    timeout: float = 30.0,
    tries: int = 5,
) -> str:
    """Download one file with pooch: to a temporary file first, moved to its place when it is whole and right.

    A connection counts as cut after ``timeout`` seconds without a byte; ``tries`` are attempts in all, and ``progress``
    is called after every chunk. Folders are made. Returns the sha256 of the file.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"{url} is no web address", remedy="pass one that starts with https:// or http://")
    target = Path(target)

    def check_head(response: requests.Response, **_: Any) -> None:
        if response.is_redirect:
            return
        if response.status_code >= 400 and response.status_code not in _BUSY:
            raise _GiveUpError(_http_error(url, response))
        length = response.headers.get("Content-Length", "")
        chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
        if not (length.isdigit() or chunked or sha256):
            problem = f"{url}: the server does not say how long the file is, so a cut one would go unnoticed"
            raise _GiveUpError(DataError(problem, remedy="pass its sha256, or download it by hand"))
        try:
            check_space(target.parent, int(length or 0))
        except DataError as error:
            raise _GiveUpError(error) from None

    def attempt(url: str, output: str, manager: Any) -> None:
        options = {"timeout": timeout, "headers": _HEADERS, "hooks": {"response": check_head}}
        pooch.HTTPDownloader(progressbar=_ProgressBar(progress), chunk_size=1 << 18, **options)(url, output, manager)
        digest = pooch.file_hash(output)
        if sha256 is not None and digest != sha256:
            problem = f"{url} has the sha256 {digest}, not {sha256}; it was deleted"
            remedy = "try again; if it stays so, the file on the host has changed"
            raise _GiveUpError(DataError(problem, remedy=remedy))

    make_folder(target.parent)
    pooch.get_logger().setLevel("WARNING")
    registry, urls = {target.name: sha256}, {target.name: url}
    manager = pooch.create(target.parent, base_url="", registry=registry, urls=urls, retry_if_failed=tries - 1)
    try:
        with locked(target):
            manager.fetch(target.name, downloader=attempt)
    except _GiveUpError as error:
        raise error.args[0] from None
    except requests.HTTPError as error:
        raise _http_error(url, error.response) from None
    except requests.RequestException as error:
        raise DataError(f"{url} cannot be downloaded: {error}, {tries} times", remedy=_BY_HAND) from None
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=target) from None
    return pooch.file_hash(target)


def _http_error(url: str, response: requests.Response | None) -> DataError:
    what = "no answer" if response is None else f"HTTP {response.status_code} {response.reason}"
    return DataError(f"{url} cannot be downloaded: {what}", remedy=_BY_HAND)


def check_space(folder: Path, needed: int) -> None:
    """Raise DataError unless so many bytes fit into the folder."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{needed / 1e6:,.1f} MB are needed and {free / 1e6:,.1f} MB free"
        raise DataError(problem, file=folder, remedy="make room on the disk")


def unpack(archive: Path, folder: Path, wanted: Sequence[str], most_bytes: int = MOST_BYTES) -> list[Path]:
    """Extract members of a ``.zip`` or ``.tar.gz`` into one folder, all or none of them.

    Unlike pooch's processors this takes patterns and bounds what comes out. ``wanted`` are patterns for the members'
    paths, as in ``*_TRAIN.ts``; each has to match at least one. The archive's own folders are left out, and all members
    together have ``most_bytes`` at most. Returns the files in the order of their names.
    """
    fresh = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with _members(archive) as members:
            chosen = _chosen(archive, members, wanted)
            check_space(fresh, sum(size for _, size, _ in chosen.values()))
            _write(archive, chosen, fresh, most_bytes)
        names = sorted(chosen)
        if not folder.exists():
            os.replace(fresh, folder)
        else:
            for name in names:
                os.replace(fresh / name, folder / name)
    except _DAMAGED as error:
        problem = f"the archive is damaged ({error})"
        raise DataError(problem, file=archive, remedy="delete it and download it again") from None
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
            raise DataError(
                f"the member {member[0]!r} leads out of the folder", file=archive, remedy="do not unpack it"
            )
        if path.name in chosen:
            raise DataError(f"two members are called {path.name!r}", file=archive, remedy="download it again")
        chosen[path.name] = member
        unused -= matching
    if unused:
        raise DataError(f"there is no member {sorted(unused)[0]!r}", file=archive, remedy="download it again")
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
                    raise DataError(
                        f"unpacks to more than {most_bytes:,} bytes", file=archive, remedy="unpack it by hand"
                    )
                file.write(chunk)


def reference_checksums() -> dict[str, str]:
    """The sha256 of every file of the reference copy, by its path below the data folder."""
    return _parse_checksums((files(__package__) / "checksums.txt").read_text())


def verify(info: DatasetInfo) -> list[tuple[Path, str]]:
    """Check the checksums of all files of a data set: ``ok``, ``wrong``, or ``unknown`` where none was recorded.

    A file is held against the sum of the reference copy, of its source, or of its first download.
    """
    sums = {source.target: source.sha256 for source in info.sources if source.sha256 and not source.members}
    reference = reference_checksums()
    results: list[tuple[Path, str]] = []
    for path in dict.fromkeys(path for form in info.forms for path in form.files):
        place = find_file(path)
        if place is None:
            continue
        if place.is_dir():
            results += _verified_folder(place)
            continue
        stored = path if place.name == PurePosixPath(path).name else str(PurePosixPath(path).with_name(place.name))
        own = _recorded(_record(place)).get(place.name)
        unpacked = _recorded(_record(place.parent)).get(f"{place.parent.name}/{place.name}")
        known = {digest for digest in (reference.get(stored), sums.get(stored), own or unpacked) if digest}
        results.append((place, "unknown" if not known else "ok" if pooch.file_hash(place) in known else "wrong"))
    return results


def _verified_folder(folder: Path) -> list[tuple[Path, str]]:
    recorded = _recorded(_record(folder))
    if not recorded:
        return [(folder, "unknown")]
    files = [(folder.parent / name, digest) for name, digest in recorded.items()]
    wrong = [path for path, digest in files if not path.exists() or pooch.file_hash(path) != digest]
    return [(path, "wrong") for path in wrong] or [(folder, "ok")]


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _recorded(record: Path) -> dict[str, str]:
    return _parse_checksums(read_text(record)) if record.exists() else {}


def _parse_checksums(text: str) -> dict[str, str]:
    """Name -> sum, from lines as ``sha256sum`` writes them."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {row[1].lstrip("*"): row[0] for row in rows if len(row) == 2}

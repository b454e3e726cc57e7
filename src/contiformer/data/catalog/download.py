"""One file from the web, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contiformer.data.catalog.lock import only_one
from contiformer.data.errors import DataError

#: Called with the bytes that are here and the bytes there are, None where the server does not say.
Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 18
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}
_BY_HAND = "check the connection, or download it by hand"


class _CutError(Exception):
    """The connection ended before the file did."""


def download(
    url: str,
    target: str | os.PathLike[str],
    sha256: str | None = None,
    progress: Progress | None = None,
    *,
    timeout: float = 30.0,
    tries: int = 5,
    wait: float = 1.0,
) -> str:
    """Fetch a file, go on where an earlier attempt ended, check it, and only then put it in its place.

    The bytes so far are in ``<target>.partial``. They are used again if the server confirms that the file is still the
    same one (ETag or Last-Modified, sent as If-Range), or if its sha256 is known; otherwise all starts anew. A server
    that ignores the range sends everything, and everything is taken.

    Args:
        url: http or https.
        target: where the file goes; folders are made.
        sha256: what its sum has to be.
        progress: told after every chunk.
        timeout: seconds without a byte until a connection counts as cut.
        tries: connections in all.
        wait: seconds before the second one; doubled for each one after it.

    Returns:
        The sha256 of the file.

    Raises:
        DataError: when it cannot be had, does not fit on the disk, or is not the file it should be.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"{url} is no web address", remedy="pass one that starts with https:// or http://")
    with only_one(Path(target)):
        return _download(url, _Partial(Path(target)), sha256, progress, timeout, tries, wait)


def _download(
    url: str, place: _Partial, sha256: str | None, progress: Progress | None, timeout: float, tries: int, wait: float
) -> str:
    for attempt in range(1, tries + 1):
        try:
            _fetch(url, place, sha256 is not None, progress, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code not in _WORTH_ANOTHER_TRY or attempt == tries:
                raise DataError(
                    f"{url} cannot be downloaded: HTTP {error.code} {error.reason}", remedy=_BY_HAND
                ) from None
        except (OSError, http.client.HTTPException, _CutError) as error:
            if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
                raise DataError(f"cannot be written ({error.strerror})", file=place.path) from None
            if attempt == tries:
                raise DataError(
                    f"{url} cannot be downloaded: {error or type(error).__name__}, {tries} times",
                    remedy=f"{_BY_HAND}; the next attempt goes on from here",
                ) from None
        time.sleep(wait * 2 ** (attempt - 1))
    digest = file_sha256(place.path)
    if sha256 is not None and digest != sha256:
        place.discard()
        raise DataError(
            f"{url} has the sha256 {digest}, not {sha256}; it was deleted",
            remedy="try again; if it stays so, the file on the host has changed",
        )
    place.finish()
    return digest


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The sum of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_space(folder: Path, needed: int) -> None:
    """Raise DataError unless so many bytes fit into the folder."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{needed / 1e6:,.1f} MB are needed and {free / 1e6:,.1f} MB free",
            file=folder,
            remedy="make room on the disk",
        )


@dataclass
class _Partial:
    """The bytes so far, and what the server said about the file they are of."""

    target: Path

    def __post_init__(self) -> None:
        self.path = self.target.with_name(f"{self.target.name}.partial")
        self._tag = self.target.with_name(f"{self.target.name}.partial.tag")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the folder cannot be made ({error.strerror})", file=self.target.parent) from None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def tag(self) -> str | None:
        return self._tag.read_text("latin-1") if self._tag.exists() else None

    def start_over(self, tag: str | None) -> None:
        self.path.write_bytes(b"")
        if tag is None:
            self._tag.unlink(missing_ok=True)
        else:
            self._tag.write_text(tag, "latin-1")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._tag.unlink(missing_ok=True)

    def finish(self) -> None:
        os.replace(self.path, self.target)
        self._tag.unlink(missing_ok=True)


def _fetch(url: str, place: _Partial, sum_known: bool, progress: Progress | None, timeout: float) -> None:
    have, tag = place.size, place.tag
    headers = {"User-Agent": "contiformer", "Accept-Encoding": "identity"}
    if have and (tag or sum_known):
        headers["Range"] = f"bytes={have}-"
        if tag:
            headers["If-Range"] = tag
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return  # the last attempt ended with the last byte
            place.discard()
            raise _CutError("the file on the host has changed") from None
        raise
    with response:
        have, end, total = _begin(url, response, place, have, sum_known)
        check_space(place.path.parent, (total or 0) - have)
        with open(place.path, "ab") as file:
            while chunk := response.read1(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                if progress is not None:
                    progress(have, total)
    if have != place.size or (end is not None and have != end):
        if end is not None and have > end:
            place.discard()
        raise _CutError(f"{have:,} of {end:,} bytes came" if end is not None else "the file was changed on the way")
    if total is not None and have != total:
        raise _CutError(f"{have:,} of {total:,} bytes came")


def _begin(url: str, response: Any, place: _Partial, have: int, sum_known: bool) -> tuple[int, int | None, int | None]:
    """Bytes that are here already, bytes after this answer, and bytes in all, as the head of the answer has it."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        start, end, total = _range(response.headers.get("Content-Range", ""))
        if start != have or (total is None and not sum_known):
            place.discard()
            raise _CutError(f"the server's answer to the wish for bytes from {have} on is of no use")
        return have, end, total
    place.start_over(_validator(response.headers))
    length = response.headers.get("Content-Length", "")
    chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
    if not (length.isdigit() or chunked or sum_known):
        raise DataError(
            f"{url}: the server does not say how long the file is, so a cut one would go unnoticed",
            remedy="pass its sha256, or download it by hand",
        )
    known = int(length) if length.isdigit() else None
    return 0, known, known


def _validator(headers: Any) -> str | None:
    """What tells this version of the file from another; a weak ETag does not."""
    tag = headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    modified = headers.get("Last-Modified")
    return None if modified is None else str(modified)


def _range(text: str) -> tuple[int, int | None, int | None]:
    """First byte, the one after the last, and the length of the whole; the first is -1 where there is no range."""
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", text.strip())
    if match is None:
        return -1, None, None
    return int(match[1]), int(match[2]) + 1, None if match[3] == "*" else int(match[3])

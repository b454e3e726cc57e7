"""Against a real server on loopback, with the faults that real servers and lines have."""

import contextlib
import gzip
import hashlib
import http.server
import io
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from contiformer.data.catalog import download as module
from contiformer.data.catalog import load_uea, locate
from contiformer.data.catalog.download import download, fetch, unpack, verify
from contiformer.data.catalog.registry import DATASETS, DatasetInfo, FileForm, Source, dataset_info
from contiformer.data.catalog.storage import load, presence
from contiformer.data.errors import DataError

BODY = bytes(range(256)) * 4000
SUM = hashlib.sha256(BODY).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server.site
        site.requests.append({key.lower(): value for key, value in self.headers.items()})
        if self.path not in site.files:
            return self.send_error(404)
        if site.errors:
            return self.send_error(site.errors.pop(0))
        body = site.files[self.path]
        self.send_response(200)
        if site.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        end = site.cuts.pop(0) if site.cuts else len(body)
        with contextlib.suppress(ConnectionError):  # the client may have gone
            for piece in range(0, end, 100_000):
                self.wfile.write(body[piece : min(piece + 100_000, end)])
                time.sleep(site.pause)
        self.close_connection = True


class Site:
    def __init__(self):
        self.files, self.requests, self.cuts, self.errors = {"/data.bin": BODY}, [], [], []
        self.says_length, self.pause = True, 0.0


@contextlib.contextmanager
def serving(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.site = site
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)


@pytest.fixture
def site():
    with serving(Site()) as site:
        yield site


def _get(site, target, sha256=None, **options):
    return download(f"{site.url}/data.bin", target, sha256, timeout=5, **options)


def _nothing_left(folder, *names):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") == sorted(names)


def test_whole_file_with_progress(site, tmp_path):
    seen = []
    target = tmp_path / "new" / "data.bin"
    assert _get(site, target, SUM, progress=lambda here, total: seen.append((here, total))) == SUM
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [here for here, _ in seen] == sorted(here for here, _ in seen)
    assert _nothing_left(target.parent, "data.bin")


@pytest.mark.parametrize("known", [SUM, None])
def test_a_cut_connection_is_tried_again_from_the_start(site, tmp_path, known):
    site.cuts = [500_000, 700_000]
    _get(site, tmp_path / "data.bin", known)
    assert (tmp_path / "data.bin").read_bytes() == BODY
    assert len(site.requests) == 3
    assert all("range" not in request for request in site.requests)
    assert _nothing_left(tmp_path, "data.bin")


def test_two_at_a_time_take_turns(site, tmp_path):
    site.pause = 0.01
    with ThreadPoolExecutor(2) as pool:
        sums = list(pool.map(lambda _: _get(site, tmp_path / "data.bin"), range(2)))
    assert sums == [SUM, SUM]
    assert (tmp_path / "data.bin").read_bytes() == BODY


def test_a_cut_download_leaves_nothing(site, tmp_path):
    site.cuts = [400_000]
    with pytest.raises(DataError, match="cannot be downloaded"):
        _get(site, tmp_path / "data.bin", tries=1)
    assert _nothing_left(tmp_path)
    site.files["/data.bin"] = BODY[::-1]
    _get(site, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == BODY[::-1]


def test_a_wrong_sum_leaves_nothing(site, tmp_path):
    with pytest.raises(DataError, match=f"{SUM}, not {'0' * 64}"):
        _get(site, tmp_path / "data.bin", "0" * 64)
    assert _nothing_left(tmp_path)


def test_a_wrong_sum_leaves_an_old_file_alone(site, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"old")
    with pytest.raises(DataError):
        _get(site, tmp_path / "data.bin", "0" * 64)
    assert (tmp_path / "data.bin").read_bytes() == b"old"


def test_not_found_is_final(site, tmp_path):
    with pytest.raises(DataError, match="HTTP 404"):
        download(f"{site.url}/nothing", tmp_path / "x")
    assert len(site.requests) == 1
    assert _nothing_left(tmp_path)


def test_a_busy_server_is_asked_again(site, tmp_path):
    site.errors = [503, 429]
    _get(site, tmp_path / "data.bin", SUM)
    assert len(site.requests) == 3


def test_a_host_that_does_not_answer(tmp_path):
    with pytest.raises(DataError, match="cannot be downloaded"):
        download("http://127.0.0.1:9/x", tmp_path / "x", tries=2, timeout=1)


def test_a_server_that_does_not_say_the_length(site, tmp_path):
    site.says_length = False
    with pytest.raises(DataError, match="does not say how long"):
        _get(site, tmp_path / "data.bin")
    _get(site, tmp_path / "data.bin", SUM)
    assert (tmp_path / "data.bin").read_bytes() == BODY


def test_a_full_disk(site, tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(DataError, match="MB are needed"):
        _get(site, tmp_path / "data.bin")
    assert not (tmp_path / "data.bin").exists()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/x", "data.bin"])
def test_only_the_web(url, tmp_path):
    with pytest.raises(DataError, match="no web address"):
        download(url, tmp_path / "x")


def test_a_place_that_cannot_be_written(site, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="folder cannot be made"):
        _get(site, tmp_path / "file" / "data.bin")


def _zip(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in members.items():
            pack.writestr(name, data)
    return buffer.getvalue()


def _tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tape:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            if data is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                entry.size = len(data)
            tape.addfile(entry, None if data is None else io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [_zip, _tar])
def test_unpacking_takes_what_is_wanted(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack({"X/X_TRAIN.ts": b"1", "X/X_TEST.ts": b"2", "X/X.txt": b"3", "../evil": b"4"}))
    files = unpack(tmp_path / "a", tmp_path / "X", ["*X_TRAIN.ts", "*X_TEST.ts"])
    assert [file.read_bytes() for file in files] == [b"2", b"1"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["X", "X_TEST.ts", "X_TRAIN.ts", "a"]


@pytest.mark.parametrize("pack", [_zip, _tar])
@pytest.mark.parametrize("name", ["../x.ts", "/x.ts", "a/../../x.ts", "..\\x.ts", "C:/x.ts"])
def test_nothing_leads_out_of_the_folder(tmp_path, pack, name):
    (tmp_path / "a").write_bytes(pack({name: b"1"}))
    with pytest.raises(DataError, match="leads out"):
        unpack(tmp_path / "a", tmp_path / "X", ["*.ts"])
    assert _nothing_left(tmp_path, "a")


@pytest.mark.parametrize("pack", [_zip, _tar])
def test_unpacking_is_bounded(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack({"x.ts": bytes(3_000_000)}))
    with pytest.raises(DataError, match="more than 2,000,000 bytes"):
        unpack(tmp_path / "a", tmp_path / "X", ["*.ts"], most_bytes=2_000_000)
    assert _nothing_left(tmp_path, "a")


def test_links_in_an_archive_are_not_followed(tmp_path):
    (tmp_path / "a").write_bytes(_tar({"x.ts": None}))
    with pytest.raises(DataError, match="no member"):
        unpack(tmp_path / "a", tmp_path / "X", ["*.ts"])


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04 not really", _zip({"x.ts": b"abc" * 999})[:-30], b"\x1f\x8b\x08 no"],
    ids=["empty", "not a zip", "cut zip", "not a gzip"],
)
def test_damaged_archives(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError):
        unpack(tmp_path / "a", tmp_path / "X", ["*.ts"])
    assert _nothing_left(tmp_path, "a")


def test_a_damaged_member(tmp_path):
    data = bytearray(_zip({"x.ts": b"abc" * 999}))
    data[40] ^= 0xFF
    (tmp_path / "a").write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged"):
        unpack(tmp_path / "a", tmp_path / "X", ["*.ts"])


def _info(*sources, files=("x/data.bin",), folder="x"):
    return DatasetInfo("X", "events", {}, "", folder, (FileForm(files),), "none:none", sources)


def test_a_first_download_is_recorded_and_later_ones_held_against_it(site, tmp_path, monkeypatch):
    info = _info(Source(f"{site.url}/data.bin", "x/data.bin"))
    assert fetch(info, tmp_path) == tmp_path / "x"
    assert (tmp_path / "x/data.bin.sha256").read_text() == f"{SUM}  data.bin\n"
    fetch(info, tmp_path)
    assert len(site.requests) == 1  # it was there
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
    assert verify(info) == [(tmp_path / "x/data.bin", "ok")]
    (tmp_path / "x/data.bin").write_bytes(b"broken")
    assert verify(info) == [(tmp_path / "x/data.bin", "wrong")]
    (tmp_path / "x/data.bin").unlink()
    site.files["/data.bin"] = BODY[::-1]
    with pytest.raises(DataError, match=r"earlier download.*data\.bin\.sha256"):
        fetch(info, tmp_path)


def test_an_archive_is_unpacked_recorded_and_removed(site, tmp_path, monkeypatch):
    site.files["/X.zip"] = _zip({"X_TRAIN.ts": b"1", "X_TEST.ts": b"2"})
    source = Source(f"{site.url}/X.zip", "uea/X", members=("*X_TRAIN.ts", "*X_TEST.ts"))
    info = _info(source, files=("uea/X/X_TRAIN.ts.gz", "uea/X/X_TEST.ts.gz"), folder="uea/X")
    fetch(info, tmp_path)
    assert {path.name for path in (tmp_path / "uea").rglob("*") if path.suffix != ".lock"} == {
        "X",
        "X_TRAIN.ts",
        "X_TEST.ts",
        "X.sha256",
    }
    fetch(info, tmp_path)
    assert len(site.requests) == 1
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
    assert [result for _, result in verify(info)] == ["ok", "ok"]
    (tmp_path / "uea/X/X_TEST.ts").write_bytes(b"3")
    assert [result for _, result in verify(info)] == ["ok", "wrong"]


def test_a_folder_of_files_is_verified_as_a_whole(site, tmp_path, monkeypatch):
    site.files["/set-a.tar.gz"] = _tar({"./set-a/1.txt": b"1", "./set-a/2.txt": b"2"})
    source = Source(f"{site.url}/set-a.tar.gz", "c/set-a", members=("*set-a/*.txt",))
    info = _info(source, files=("c/set-a",), folder="c")
    fetch(info, tmp_path)
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
    assert verify(info) == [(tmp_path / "c/set-a", "ok")]
    (tmp_path / "c/set-a/2.txt").unlink()
    assert verify(info) == [(tmp_path / "c/set-a/2.txt", "wrong")]


def test_from_the_archive_to_the_loader(site, cache, shared, monkeypatch):
    expected = {split: load_uea("Libras", split) for split in ("train", "test")}
    names = ("Libras_TRAIN.ts", "Libras_TEST.ts")
    texts = {name: gzip.decompress((shared / "uea/Libras" / f"{name}.gz").read_bytes()) for name in names}
    site.files["/Libras.zip"] = _zip({**texts, "Libras_TRAIN.arff": b"@relation", "Libras.txt": b"about"})
    site.cuts = [1000]
    monkeypatch.delenv("CONTIFORMER_DATA")
    with pytest.raises(DataError, match="datasets download Libras"):
        load_uea("Libras")
    info = dataset_info("Libras")
    here = replace(info, sources=(replace(info.sources[0], url=f"{site.url}/Libras.zip"),))
    monkeypatch.setitem(DATASETS, "Libras", here)
    with pytest.raises(DataError, match="datasets download Libras"):
        load("Libras")
    assert load("Libras", split="test", download=True) == expected["test"]
    assert fetch(here) == cache / "uea/Libras" == locate("Libras")
    assert presence(info) == "yes"
    for split, data in expected.items():
        assert load_uea("Libras", split) == data
    assert [result for _, result in verify(info)] == ["ok", "ok"]

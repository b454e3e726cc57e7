import gzip
import sys
from types import ModuleType

import pytest

from benchmarks.data import bench_ts
from contiformer.data.errors import DataError
from contiformer.data.readers.ts import read_ts


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "Tiny").mkdir()
    text = b"@classLabel true a b\n@data\n1,2:3,4:a\n5,6:7,8:b\n"
    (tmp_path / "Tiny" / "Tiny_TRAIN.ts.gz").write_bytes(gzip.compress(text))
    return tmp_path


@pytest.fixture
def loaded(monkeypatch):
    """What a stand-in for aeon was asked to load: it reads each file five times."""
    files = []

    def load_from_ts_file(path):
        files.append(path)
        return [read_ts(path) for _ in range(5)]

    datasets = ModuleType("aeon.datasets")
    datasets.load_from_ts_file = load_from_ts_file
    monkeypatch.setitem(sys.modules, "aeon", ModuleType("aeon"))
    monkeypatch.setitem(sys.modules, "aeon.datasets", datasets)
    return files


def test_a_row_for_the_packed_and_one_for_the_plain_file(archive, loaded):
    rows = bench_ts(archive, ["Tiny"], budget=0.05, at_least=5)
    assert [row["file"] for row in rows] == ["Tiny_TRAIN.ts.gz", "Tiny_TRAIN.ts"]
    for row in rows:
        assert 0 < row["ours_ms"] < row["aeon_ms"]
        assert row["ratio"] < 1
    assert loaded
    assert all(path.endswith("Tiny_TRAIN.ts") for path in loaded), "aeon cannot read the packed file"


@pytest.mark.usefixtures("loaded")
def test_a_set_that_is_not_there(archive):
    with pytest.raises(DataError, match=r"Other_TRAIN.*no such file"):
        bench_ts(archive, ["Other"])


def test_without_aeon_it_says_what_to_install(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "aeon", None)
    monkeypatch.setitem(sys.modules, "aeon.datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"contiformer\[bench\]"):
        bench_ts(archive, ["Tiny"])

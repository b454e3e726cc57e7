import re
from pathlib import Path

import pytest

from contiformer.data.catalog import DATASETS, load_clinical, load_events, load_forecasting, load_uea, locate, storage
from contiformer.data.catalog.download import reference_checksums
from contiformer.data.catalog.registry import dataset_info
from contiformer.data.errors import DataError


def _touch(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


LIBRAS = ("uea/Libras/Libras_TRAIN.ts.gz", "uea/Libras/Libras_TEST.ts.gz")


def test_the_variable_comes_before_the_cache(cache, tmp_path, monkeypatch):
    assert locate("Libras") is None
    _touch(cache, *LIBRAS)
    assert locate("Libras") == cache / "uea/Libras"
    given = tmp_path / "given"
    monkeypatch.setenv("CONTIFORMER_DATA", str(given))
    assert locate("Libras") == cache / "uea/Libras"
    _touch(given, *LIBRAS)
    assert locate("Libras") == given / "uea/Libras"
    assert storage.find_file(LIBRAS[0]) == given / LIBRAS[0]


def test_a_whole_set_in_the_cache_comes_before_a_part_elsewhere(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path / "given"))
    _touch(tmp_path / "given", LIBRAS[0])
    assert locate("Libras") == tmp_path / "given/uea/Libras"
    assert storage.presence(dataset_info("Libras")) == "part"
    _touch(cache, *LIBRAS)
    assert locate("Libras") == cache / "uea/Libras"
    assert storage.presence(dataset_info("Libras")) == "yes"


def test_files_may_be_packed_or_not(cache):
    _touch(cache, "uea/Libras/Libras_TRAIN.ts", "forecast/national_illness/national_illness.csv.gz")
    assert storage.find_file(LIBRAS[0]) == cache / "uea/Libras/Libras_TRAIN.ts"
    assert storage.presence(dataset_info("ILI")) == "yes"


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("linux", ".cache/contiformer"), ("darwin", "Library/Caches/contiformer"), ("win32", "local/contiformer/Cache")],
)
def test_the_cache_of_each_platform(monkeypatch, tmp_path, platform, expected):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(storage.sys, "platform", platform)
    assert storage.cache_folder() == tmp_path / expected


@pytest.mark.parametrize(
    ("load", "file"),
    [
        (lambda: load_uea("Libras", "test"), "uea/Libras/Libras_TEST.ts.gz"),
        (lambda: load_events("Taxi"), "tpp/taxi/train.json or tpp/taxi/taxi.jsonl.gz"),
        (lambda: load_events("Traffic"), "tpp/traffic/traffic.txt.gz"),
        (lambda: load_forecasting("ETTm1"), "forecast/ETTm1/ETTm1.csv.gz"),
        (lambda: load_clinical("PhysioNet2012-A"), "clinical/physionet2012/set-a.csv.gz"),
    ],
)
def test_what_is_missing_is_named_with_two_remedies(load, file):
    with pytest.raises(DataError) as caught:
        load()
    assert file in str(caught.value)
    assert "contiformer datasets download" in str(caught.value)
    assert "CONTIFORMER_DATA" in str(caught.value)


def test_a_set_without_a_download_says_where_it_is():
    with pytest.raises(DataError, match=r"drive\.google\.com.*CONTIFORMER_DATA"):
        load_events("MIMIC-II")


def test_names_in_any_case_and_with_suggestions():
    assert dataset_info("libras").name == "Libras"
    assert dataset_info("physionet2012-a").name == "PhysioNet2012-A"
    with pytest.raises(DataError, match="did you mean 'PenDigits'"):
        dataset_info("PenDigit")
    with pytest.raises(DataError, match="did you mean 'MIMIC-II'"):
        dataset_info("mimicii")


def test_no_part_but_train_and_test():
    with pytest.raises(DataError, match="no part 'dev'"):
        load_uea("Libras", "dev")


def test_every_entry_is_consistent():
    assert len(DATASETS) == 67
    for info in DATASETS.values():
        assert info.licence
        assert info.sizes
        files = {path for form in info.forms for path in form.files}
        places = {path.removesuffix(".gz") for path in files}
        for source in info.sources:
            assert source.url.startswith("https://")
            assert source.target.removesuffix(".gz") in places | {info.folder}
            assert source.sha256 is None or len(source.sha256) == 64
        assert bool(info.sources) != bool(info.by_hand)


def test_the_sums_are_those_of_the_readme(shared):
    text = (shared / "README.md").read_text("utf-8")
    sums = reference_checksums()
    listed = dict(re.findall(r"\| data/(\S+) \|[^\n]*\| ([0-9a-f]{64}) \|", text))
    assert {path: listed.get(path) for path in sums} == sums
    known = {path for info in DATASETS.values() for form in info.forms for path in form.files}
    unused = set(sums) - known
    assert unused == {"tpp/neonate/annotations_2017.mat", "tpp/neonate/clinical_information.csv"}

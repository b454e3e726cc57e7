"""Sizes of the loaded data sets agree with those counted when the data were collected."""

import gzip
import json
import re

import numpy as np
import polars as pl
import pytest

from contiformer.data.catalog import (
    DATASETS,
    clinical_split,
    load_clinical,
    load_events,
    load_forecasting,
    load_irregular,
    load_uea,
    observation_windows,
)
from contiformer.data.catalog.event_records import load_neonate
from contiformer.data.catalog.storage import find_file, presence
from contiformer.data.catalog.uea import UEA_NAMES
from contiformer.data.errors import DataError


def _readme(shared):
    return (shared / "README.md").read_text("utf-8")


def _uea_rows(text):
    pattern = r"\| (\w+) \| (\d+) / (\d+|-) \| (\d+)(?:-(\d+))?[^|]* \| (\d+) \| (\d+) \|"
    section = text.partition("\n## uea")[2].partition("\n## ")[0]
    return {m[0]: m[1:] for m in re.findall(pattern, section)}


def test_every_classification_set_has_the_sizes_of_the_readme(shared):
    rows = _uea_rows(_readme(shared))
    assert len(rows) == 13
    for name, (train, test, low, high, channels, classes) in rows.items():
        parts = {"train": train, "test": test}
        lengths = []
        for split, count in parts.items():
            if count == "-":
                with pytest.raises(DataError, match=f"{name}_TEST.ts"):
                    load_uea(name, split)
                continue
            data = load_uea(name, split)
            assert len(data) == int(count), (name, split)
            assert len(data.channels) == int(channels)
            assert len(data.classes) == int(classes)
            assert not any(np.isnan(series.values).any() for series in data)
            lengths += [data.lengths.min(), data.lengths.max()]
        assert (min(lengths), max(lengths)) == (int(low), int(high or low)), name


def test_heartbeat_train_has_both_labels(shared):
    labels = load_uea("Heartbeat").labels
    assert sorted(labels.count(label) for label in set(labels)) == [57, 147]


def test_the_sizes_of_the_paper_are_those_of_the_catalogue(shared):
    table = shared.parent / "paper" / "tables" / "uea_dataset_info.csv"
    if not table.exists():
        pytest.skip("the paper's tables are not here")
    stated = {}
    for line in table.read_text("utf-8").splitlines()[1:]:
        _, name, _, what, value = line.split(",")
        stated.setdefault(name, {})[what] = int(value)
    assert set(stated) == set(UEA_NAMES)
    for name, numbers in stated.items():
        sizes = DATASETS[name].sizes
        assert (sizes["classes"], sizes["channels"]) == (numbers["n_classes"], numbers["n_variates"])
        assert str(sizes["length"]).endswith(str(numbers["length"]))
        if name != "UWaveGestureLibrary":  # the paper lists another split of it
            assert (sizes["train"], sizes["test"]) == (numbers["n_train"], numbers["n_test"])


def _events_in(parts):
    return {name: (len(part), int(part.lengths.min()), int(part.lengths.max())) for name, part in parts.items()}


def _parts(name, fold=1, **options):
    return {split: load_events(name, fold=fold, split=split, **options) for split in ("train", "dev", "test")}


def test_mimic(shared):
    for fold in range(1, 6):
        parts = _parts("MIMIC-II", fold)
        assert [len(part) for part in parts.values()] == [527, 58, 65]
        assert {part.num_types for part in parts.values()} == {75}
        assert min(part.lengths.min() for part in parts.values()) == 2
        assert max(part.lengths.max() for part in parts.values()) == 33


def test_book_order(shared):
    whole = _parts("BookOrder", max_length=None, max_gap=None)
    assert _events_in(whole) == {"train": (90, 3319, 3319), "dev": (10, 3319, 3319), "test": (100, 829, 829)}
    assert sum(int(part.lengths.sum()) for part in whole.values()) == 414_800  # the paper's count
    gaps = np.concatenate([np.diff(sequence.times) for sequence in [*whole["train"], *whole["dev"]]])
    assert gaps.mean() == pytest.approx(1.32, rel=0.1)
    assert gaps.std() == pytest.approx(20.24, rel=0.1)
    for fold in range(1, 6):
        part = load_events("BookOrder", fold=fold, split="test")
        assert _events_in({"test": part}) == {"test": (100, 500, 500)}
        assert max(np.diff(sequence.times).max() for sequence in part) <= 70.001
        assert part.notes["events beyond number 500, cut off"] == 100 * 329


def test_stack_overflow(shared):
    tests = []
    for fold in range(1, 6):
        parts = _parts("StackOverflow", fold)
        assert len(parts["train"]) + len(parts["dev"]) == 4276
        assert len(parts["dev"]) == 428
        assert len(parts["test"]) == 1326
        assert parts["train"].notes["train sequences of the published set that this copy lacks"] == 1031
        ids = [set(part.ids) for part in parts.values()]
        assert len(ids[0] | ids[1] | ids[2]) == 5602
        rough = "sequences with float32 times, up to about 125 s off"
        assert sum(part.notes.get(rough, 0) for part in parts.values()) == 474
        tests.append(ids[2])
        lengths = np.concatenate([part.lengths for part in parts.values()])
        assert (lengths.min(), lengths.max()) == (41, 736)
    assert len(set(map(frozenset, tests))) == 5


def test_taxi_and_amazon(shared):
    taxi = _parts("Taxi")
    assert [len(part) for part in taxi.values()] == [1400, 200, 400]
    assert [int(part.lengths.sum()) for part in taxi.values()] == [51854, 7404, 14820]
    assert {part.num_types for part in taxi.values()} == {10}
    assert [len(load_events("Amazon", split=split)) for split in ("dev", "test")] == [300, 500]
    with pytest.raises(DataError, match="no sequence of this part"):
        load_events("Amazon", split="train")


def test_neonate_by_every_expert_and_from_both_forms(shared, tmp_path, monkeypatch):
    folder = tmp_path / "tpp" / "neonate"
    folder.mkdir(parents=True)
    derived = "neonate_seizure_onsets.jsonl.gz"
    (folder / derived).write_bytes((shared / "tpp" / "neonate" / derived).read_bytes())
    for expert, several, any_seizure, seizures in (("A", 37, 46, 402), ("B", 38, 45, 429), ("C", 46, 53, 548)):
        from_marks = load_neonate(expert)
        assert len(from_marks) == several
        lines = gzip.decompress((folder / derived).read_bytes()).splitlines()
        onsets = {r["id"]: r["times"] for r in map(json.loads, lines) if r["expert"] == expert}
        assert len(onsets) == 79
        assert sum(bool(times) for times in onsets.values()) == any_seizure
        assert sum(map(len, onsets.values())) == seizures
        monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
        assert load_neonate(expert) == from_marks
        monkeypatch.setenv("CONTIFORMER_DATA", str(shared))
        for sequence in from_marks:
            np.testing.assert_allclose(sequence.times * 60, onsets[sequence.id])
    assert len(load_events("Neonate", split="test")) in {11, 12}


def test_forecasting(shared):
    text = _readme(shared)
    for name in ("ETTh2", "ETTm2", "Exchange", "Weather", "ILI"):
        rows, channels = map(int, re.search(rf"\| {name} \|[^|]*\| (\d+) x (\d+)", text).groups())
        data = load_forecasting(name)
        assert data[0].values.shape == (rows, channels)
        assert (DATASETS[name].sizes["rows"], DATASETS[name].sizes["channels"]) == (rows, channels)
        assert data.schema.dates
        assert not np.isnan(data[0].values).any()


def test_exchange_is_the_same_from_both_files(shared, tmp_path, monkeypatch):
    dated = load_forecasting("Exchange")
    name = "forecast/exchange_rate/exchange_rate.txt.gz"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes((shared / name).read_bytes())
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
    plain = load_forecasting("Exchange")
    assert plain.channels == dated.channels
    np.testing.assert_array_equal(plain[0].times, dated[0].times)
    np.testing.assert_allclose(plain[0].values, dated[0].values, atol=5e-7)


@pytest.mark.parametrize(("letter", "rows", "deaths"), [("A", 1_753_980, 554), ("B", 1_758_535, 568)])
def test_physionet(shared, letter, rows, deaths):
    data = load_clinical(f"PhysioNet2012-{letter}")
    assert (len(data), sum(data.labels)) == (4000, deaths)
    assert len(data.channels) == 37
    assert len(set(data.ids)) == 4000
    # every row of the file is a value, a value merged with another, or a descriptor: five of each record
    values = sum(int(series.observed.sum()) for series in data)
    merged = data.notes["values at the same time as another of the same variable (mean)"]
    unknown = data.notes.get("weights of -1, taken as not observed", 0)
    assert values + merged + unknown + 5 * 4000 == rows
    assert max(series.times[-1] for series in data if len(series)) <= 48
    assert all(len(np.unique(series.times)) == len(series) for series in data)


def test_the_published_splits_of_p12(shared):
    whole = load_clinical("P12")
    sizes = DATASETS["P12"].sizes
    assert (len(whole), sum(whole.labels)) == (sizes["records"], sizes["deaths"]) == (11_988, 1707)
    assert whole.lengths.min() == 1
    assert whole.notes["records without a measurement"] == 12
    folds = [clinical_split("P12", fold) for fold in range(1, 6)]
    for parts in folds:
        assert {name: len(ids) for name, ids in parts.items()} == {"train": 9590, "val": 1199, "test": 1199}
        assert set().union(*parts.values()) == set(whole.ids)
    assert len({tuple(parts["test"]) for parts in folds}) == 5


def test_the_published_splits_of_p19(shared):
    whole = load_clinical("P19")
    sizes = DATASETS["P19"].sizes
    assert (len(whole), sum(whole.labels)) == (sizes["patients"], sizes["septic"]) == (38_803, 1626)
    assert (len(whole.channels), len(whole.schema.static)) == (sizes["channels"], sizes["static"])
    assert (whole.lengths.min(), whole.lengths.max()) == (1, 60)
    assert not {"p108796", "p115810", "p013777"} & set(whole.ids)
    table = pl.read_csv(shared / "clinical/physionet2019/patients.csv.gz")
    rows = dict(table.select("PatientID", "rows_before_label").iter_rows())
    assert {series.id: len(series) for series in whole} == {name: rows[name] for name in whole.ids}
    for fold in range(1, 6):
        parts = clinical_split("P19", fold)
        assert {name: len(ids) for name, ids in parts.items()} == {"train": 31_042, "val": 3880, "test": 3881}
        assert set().union(*parts.values()) == set(whole.ids)


def test_nafld(shared):
    whole = load_clinical("NAFLD", until=None)
    assert whole.channels == ("fib4", "hdl", "sbp", "smoke")
    merged = whole.notes["rows merged at equal times, by mean"]
    assert sum(int(series.observed.sum()) for series in whole) + merged == 205_435
    assert len(whole) == 15_666
    before = load_clinical("NAFLD")
    assert max(series.times[-1] for series in before) <= 0
    assert set(before.ids) <= set(whole.ids)
    assert 0 < sum(before.labels) < sum(whole.labels) <= DATASETS["NAFLD"].sizes["deaths"]


def test_series_with_gaps_and_unequal_lengths(shared):
    section = _readme(shared).partition("\n## irregular")[2].partition("\n## ")[0]
    rows = re.findall(r"\| (\w+) \| (\d+) / (\d+) \| [^|]* \| (\d+) \| (\d+)", section)
    assert len(rows) == 8
    for name, train, test, classes, missing in rows:
        parts = [load_irregular(name, split=split) for split in ("train", "test")]
        sizes = DATASETS[name].sizes
        assert [len(part) for part in parts] == [int(train), int(test)] == [sizes["train"], sizes["test"]]
        assert len(parts[0].classes) == int(classes) == sizes["classes"]
        gaps = sum(int(np.isnan(series.values).sum()) for part in parts for series in part)
        assert gaps == int(missing), name
        lengths = np.concatenate([part.lengths for part in parts])
        low, _, high = str(sizes["length"]).partition("-")
        assert (lengths.min(), lengths.max()) == (int(low), int(high or low)), name


@pytest.mark.parametrize(
    ("name", "series", "points", "labels"),
    [
        ("Animals", 102, 14_990, {"cattle": 34, "deer": 30, "elk": 38}),
        ("Vehicles", 381, 178_299, {"bus": 108, "truck": 273}),
        ("GoTrack", 163, 18_107, {"car": 87, "bus": 76}),
    ],
)
def test_trajectories(shared, name, series, points, labels):
    whole = load_irregular(name)
    merged = whole.notes.get("rows merged at equal times, by mean", 0)
    assert (len(whole), int(whole.lengths.sum()) + merged) == (series, points)
    assert {label: whole.labels.count(label) for label in labels} == labels
    seen = []
    for fold in range(1, 6):
        train, test = (load_irregular(name, split=split, fold=fold) for split in ("train", "test"))
        assert sorted([*train.ids, *test.ids]) == sorted(whole.ids)
        seen += test.ids
    assert sorted(seen) == sorted(whole.ids)


def test_rfid_has_a_label_at_each_time(shared):
    whole = load_irregular("RFID")
    assert (len(whole), int(whole.lengths.sum())) == (60, 52_482)
    counts = sum(series.target_values.sum(0) for series in whole)
    assert counts.tolist() == [15_162, 4381, 30_983, 1956]
    assert whole.schema.targets == ("sit on bed", "sit on chair", "lying", "ambulating")


def test_events_with_an_end_of_observation(shared):
    events = {"Reddit": [249_014, 72_802, 79_119], "Twitter": [16_180, 8400, 5497], "Yelp": [6166, 1719, 1832]}
    for name, counts in events.items():
        parts = _parts(name)
        sizes = DATASETS[name].sizes
        assert [len(part) for part in parts.values()] == [sizes[split] for split in parts]
        assert [int(part.lengths.sum()) for part in parts.values()] == counts
        windows = observation_windows(name, "test")
        assert set(windows) == {(0.0, 24.0)}
        assert len(windows) == len(parts["test"])


def test_earthquakes_are_one_catalogue_in_four_parts(shared):
    sizes = DATASETS["SanJacinto"].sizes
    end = 0.0
    for split in ("aux", "train", "dev", "test"):
        (sequence,) = load_events("SanJacinto", split=split)
        ((start, stop),) = observation_windows("SanJacinto", split)
        assert len(sequence) == sizes[split]
        assert start == end
        assert start <= sequence.times[0] <= sequence.times[-1] <= stop
        assert sequence.features.shape == (sizes[split], 1)
        assert sequence.features.min() >= 1
        end = stop
    chunks = load_events("SanJacinto", split="test", chunk=200)
    assert (len(chunks), int(chunks.lengths.sum())) == (22, 4400)


def test_presence_of_everything(shared):
    here = {name for name, info in DATASETS.items() if presence(info) == "yes"}
    assert {"Libras", "ETTh2", "MIMIC-II", "Taxi", "Neonate", "PhysioNet2012-A", "Exchange"} <= here
    assert {name for name, info in DATASETS.items() if presence(info) == "part"} == {
        "Heartbeat",
        "StackOverflow",
        "Amazon",
    }
    assert presence(DATASETS["Synthetic"]) == "generated"
    assert find_file("tpp/taxi/taxi.jsonl.gz") == shared / "tpp/taxi/taxi.jsonl.gz"

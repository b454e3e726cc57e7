"""Folds, clipping, and the rules that make events out of measurements, on data small enough to see through."""

import contextlib
import datetime as dt
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contiformer.data import EventSequence, EventSet
from contiformer.data.catalog import load_events
from contiformer.data.catalog.event_records import events_from_occupancy, onsets_from_marks
from contiformer.data.catalog.events import clipped
from contiformer.data.errors import DataError


def _write(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode()) if path.endswith(".gz") else text.encode())


def _column(*values):
    return np.array(values, float)[:, None]


def test_a_jump_is_more_than_half_of_the_hour_before():
    # 1.5 is exactly half more: no event. Then 10 hours of rest, a fall to less than half, and a rise from zero
    x = _column(1, 1.5, *[1.5] * 10, 0.7, *[0.0] * 9, 0.01)
    data = events_from_occupancy(x)
    assert data[0].times.tolist() == [12, 22]  # hour 13, the fall to zero, is within the pause after 12
    assert data[0].types.tolist() == [1, 0]
    assert data.type_names == ("up", "down")
    assert data.notes == {"events within the pause after another one, removed": 1}


def test_the_pause_counts_from_the_last_event_that_was_kept():
    x = np.ones(40)
    for hour in (5, 10, 12, 19):  # a jump up at each, and down again one hour later
        x[hour] = 3
    data = events_from_occupancy(x[:, None])
    # 5 (up), 6 removed, 10 removed (5 h), 11 removed (6 h), 12 (7 h, up), 13 removed, 19 (7 h: kept), 20 removed
    assert data[0].times.tolist() == [5, 12, 19]
    assert data.notes["events within the pause after another one, removed"] == 5


def test_sequences_end_with_the_calendar_month():
    hours = 24 * (31 + 28 + 31)
    x = np.ones((hours, 2))
    february = 24 * 31
    for hour in (100, 200, february + 3, february + 24 * 28 - 1, february + 24 * 28 + 50):
        x[hour:, 0] *= 2
    data = events_from_occupancy(x, start=dt.datetime(2015, 1, 1))
    assert data.ids == ["0/2015-01", "0/2015-02"]
    assert data[0].times.tolist() == [100, 200]
    assert data[1].times.tolist() == [3, 24 * 28 - 1]
    assert data.notes == {"sensor-months with fewer than two events, left out": 4}  # March of 0, and sensor 1


@given(arrays(float, st.tuples(st.integers(2, 1500), st.integers(1, 3)), elements=st.floats(0, 1)))
def test_events_obey_the_rule(x):
    data = events_from_occupancy(x)
    for sequence in data:
        assert len(sequence) >= 2
        assert np.diff(sequence.times).min() > 6
        sensor, month = sequence.id.split("/")
        start = dt.datetime.strptime(month, "%Y-%m") - dt.datetime(2015, 1, 1)
        at = (sequence.times + start.total_seconds() / 3600).astype(int)
        now, before = x[at, int(sensor)], x[at - 1, int(sensor)]
        assert (np.abs(now - before) > 0.5 * before).all()
        np.testing.assert_array_equal(sequence.types, np.where(now > before, 0, 1))


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_occupancy_that_is_none(bad):
    with pytest.raises(DataError, match="occupancy"):
        events_from_occupancy(_column(0.1, bad))


def test_traffic_from_its_file_in_four_folds(cache):
    draw = np.random.default_rng(1)
    x = draw.random((17544, 12)).round(4)
    _write(cache, "tpp/traffic/traffic.txt.gz", "\n".join(",".join(map(str, row)) for row in x) + "\n")
    whole = events_from_occupancy(x)
    assert len(whole) == 12 * 24
    tests = [load_events("Traffic", fold=fold, split="test") for fold in (1, 2, 3, 4)]
    assert sorted(name for part in tests for name in part.ids) == sorted(whole.ids)
    train, dev = (load_events("Traffic", fold=1, split=split) for split in ("train", "dev"))
    assert (len(tests[0]), len(train), len(dev)) == (72, 194, 22)
    assert len({*tests[0].ids, *train.ids, *dev.ids}) == 288
    assert len(load_events("Traffic", split="test", sensors=2)) == 12
    with pytest.raises(DataError, match="12 sensors"):
        load_events("Traffic", sensors=13)


def test_traffic_that_is_no_table(cache):
    _write(cache, "tpp/traffic/traffic.txt.gz", "0.1,0.2\n0.1,zero\n")
    with pytest.raises(DataError, match=r"traffic\.txt\.gz: cannot be read"):
        load_events("Traffic")


def test_onsets_at_the_edges():
    table = "1,2,3\n1,0,0\n1,0,0\n0,1,0\n,1,0\n"
    assert list(onsets_from_marks(table, "marks.csv")) == [(1, [0]), (2, [2]), (3, [])]
    with pytest.raises(DataError, match=r"marks\.csv, row 3"):
        list(onsets_from_marks("1,2\n0,0\n0,2\n", "marks.csv"))
    with pytest.raises(DataError, match=r"marks\.csv, row 2"):
        list(onsets_from_marks("1,2\n0\n", "marks.csv"))


def test_synthetic_in_four_folds(cache):
    parts = [load_events("Synthetic", fold=fold, split="test", n=12) for fold in (1, 2, 3, 4)]
    assert [len(part) for part in parts] == [3, 3, 3, 3]
    assert {part.num_types for part in parts} == {10}
    assert load_events("Synthetic", fold=2, split="test", n=12) == parts[1]


gaps = st.lists(st.floats(0, 200), min_size=1, max_size=40)


@given(gaps, st.integers(1, 50), st.floats(1, 100))
def test_clipping_by_truncation(waits, length, gap):
    times = np.cumsum(waits)
    data = EventSet([EventSequence.of(times, np.zeros(len(times)))], num_types=2)
    cut = clipped(data, max_length=length, max_gap=gap)
    kept = min(length, len(times))
    assert len(cut[0]) == kept
    expected = times[0] + np.append(0, np.cumsum(np.minimum(np.diff(times), gap)))
    np.testing.assert_allclose(cut[0].times, expected[:kept], rtol=1e-12, atol=1e-9)
    lost = cut.notes.get(f"events beyond number {length}, cut off", 0)
    assert lost == len(times) - kept
    shortened = sum(note for name, note in cut.notes.items() if name.startswith("gaps"))
    assert shortened == (np.diff(times[:kept]) > gap).sum()


def test_clipping_to_nothing_is_rejected():
    data = EventSet([EventSequence.of([0.0], [0])])
    with pytest.raises(DataError, match="max_length and max_gap must be positive"):
        clipped(data, max_length=0)


def _easytpp(cache, name, count, folder=None):
    for part, size in zip(("train", "dev", "test"), count, strict=True):
        records = [
            {
                "dim_process": 5,
                "seq_len": 2,
                "seq_idx": n,
                "time_since_start": [0.0, 1.5],
                "time_since_last_event": [0.0, 1.5],
                "type_event": [n % 5, 0],
            }
            for n in range(size)
        ]
        _write(cache, f"tpp/{name}/{part}.json", json.dumps(records))


@pytest.mark.parametrize("name", ["Taobao", "Retweet", "Earthquake", "Amazon", "Taxi"])
def test_files_of_easytpp(cache, name):
    _easytpp(cache, name.lower(), (7, 2, 3))
    parts = [load_events(name, split=split) for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [7, 2, 3]
    assert parts[0].num_types == 5
    assert parts[0][6].types.tolist() == [1, 0]
    assert parts[0][6].id == 6
    with pytest.raises(DataError, match="one split"):
        load_events(name, fold=2)


def test_a_complete_copy_comes_before_a_part_of_another(shared, cache):
    assert len(load_events("Amazon", split="dev")) == 300
    with pytest.raises(DataError):
        load_events("Amazon", split="train")
    _easytpp(cache, "amazon", (7, 2, 3))
    assert [len(load_events("Amazon", split=split)) for split in ("train", "dev", "test")] == [7, 2, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("[1, 2]", "row 1: a int, not an object"),
        ("[{]", "not JSON"),
        ('{"times": [0], "types": [0], "num_types": 1}\n{"times"', "row 2.*not JSON"),
        ('{"times": [0], "num_types": 1}', "no types"),
        ('{"times": [0, 1], "types": [0], "num_types": 1}', "row 1: 2 times"),
        ('{"times": ["noon"], "types": [0], "num_types": 1}', "row 1: a time is not a number"),
        (
            '{"times": [0], "types": [0], "num_types": 1}\n{"times": [0], "types": [0], "num_types": 2}',
            "row 2, column 'num_types': num_types is 2, and 1",
        ),
        ('{"times": [0], "types": [0]}', "row 1, column 'num_types': there are no num_types"),
        ('{"times": [0], "types": [7], "num_types": 2}', "types"),
        ("[" * 100_000, "not JSON"),
        ('{"times": [[1], [2, 3]], "types": [0, 0], "num_types": 1}', "row 1: a time is not a number"),
        ('{"times": [1], "types": [0], "num_types": 1, "id": []}', "row 1, column 'id'"),
        ('{"times": [1], "types": [0], "num_types": 1000000000000}', "column 'num_types'"),
        ('{"times": [1], "types": [0], "num_types": {}}', "column 'num_types'"),
        ('{"times": {}, "types": {}, "num_types": 1}', "times"),
        ('{"times": null, "types": null, "num_types": 1}', "times"),
    ],
)
def test_files_that_make_no_sense(cache, text, problem):
    _write(cache, "tpp/taobao/train.json", text)
    with pytest.raises(DataError, match=problem):
        load_events("Taobao")


def test_arguments_that_make_no_sense(cache):
    with pytest.raises(DataError, match="did you mean 'Neonate'"):
        load_events("Neonates")
    with pytest.raises(DataError, match="fold from 1 to 5"):
        load_events("MIMIC-II", fold=0)
    with pytest.raises(DataError, match="train, dev, test"):
        load_events("MIMIC-II", split="val")
    with pytest.raises(DataError, match="has no option expert"):
        load_events("Taxi", expert="A")
    with pytest.raises(DataError, match="unexpected keyword"):
        load_events("Neonate", experts="A")
    with pytest.raises(DataError, match="no expert 'D'"):
        load_events("Neonate", expert="D")
    with pytest.raises(DataError, match="no data set for events 'Libras'"):
        load_events("Libras")


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=6,
)
fields = ["times", "types", "num_types", "id", "split", "fold", "expert", "test_folds", "time_precision"]
objects = st.lists(st.dictionaries(st.sampled_from(fields), values), max_size=3)
contents = st.binary(max_size=200) | objects.map(lambda found: "\n".join(map(json.dumps, found)).encode())


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Taobao", "tpp/taobao/train.json"),
        ("MIMIC-II", "tpp/mimic2/mimic2.jsonl.gz"),
        ("StackOverflow", "tpp/stackoverflow/stackoverflow.jsonl.gz"),
        ("BookOrder", "tpp/bookorder/bookorder_fold1.jsonl.gz"),
        ("Neonate", "tpp/neonate/neonate_seizure_onsets.jsonl.gz"),
        ("Neonate", "tpp/neonate/annotations_2017_C.csv"),
        ("Traffic", "tpp/traffic/traffic.txt"),
    ],
)
@given(data=contents)
def test_any_contents_give_data_or_an_error_of_ours(tmp_path_factory, name, path, data):
    root = tmp_path_factory.mktemp("data")
    (root / path).parent.mkdir(parents=True)
    (root / path).write_bytes(data)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(DataError):
        patch.setenv("CONTIFORMER_DATA", str(root))
        assert isinstance(load_events(name), EventSet)

import gzip
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contiformer.data import (
    DataError,
    Series,
    SeriesSet,
    from_arrays,
    from_list,
    read_csv,
    read_events,
    read_parquet,
    scan_parquet,
    to_arrays,
    write_csv,
    write_events,
    write_parquet,
)
from tests.data.strategies import event_sets, series_sets

one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@one_folder
@given(st.one_of(series_sets(), series_sets(dates=True)), st.sampled_from(["data.csv", "data.csv.gz"]))
def test_csv_round_trip(tmp_path, data, name):
    write_csv(data, tmp_path / name)
    assert read_csv(tmp_path / name) == data


@one_folder
@given(st.one_of(series_sets(), series_sets(dates=True)))
def test_parquet_round_trip(tmp_path, data):
    write_parquet(data, tmp_path / "data.parquet")
    assert read_parquet(tmp_path / "data.parquet") == data


@one_folder
@given(event_sets(), st.sampled_from(["data.jsonl", "data.jsonl.gz"]))
def test_events_round_trip(tmp_path, data, name):
    write_events(data, tmp_path / name)
    assert read_events(tmp_path / name) == data


@given(series_sets(empty_series=True))
def test_arrays_hold_the_values(data):
    values, times, lengths = to_arrays(data)
    for n, series in enumerate(data):
        assert np.array_equal(values[n, : lengths[n]], series.values, equal_nan=True)
        assert np.array_equal(times[n, : lengths[n]], series.times)
        assert np.isnan(values[n, lengths[n] :]).all()
    back = from_arrays(values, times, lengths=lengths)
    assert all(np.array_equal(a.times, b.times) for a, b in zip(data, back, strict=True))


def test_what_a_table_cannot_hold_is_refused(tmp_path):
    for series in (Series.of([], np.zeros((0, 1))), Series.of([0], [1], target_values=[1])):
        for write in (write_csv, write_parquet):
            with pytest.raises(DataError, match="no place for"):
                write(SeriesSet([series]), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


CSV = "who,t,x\na,0,1\na,1,2\nb,0,3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("a,1,2", "a,1"), r"row 3: 2 fields where the column names are 3"),
        (CSV.replace("a,1,2", "a,1,2,9"), r"row 3: 4 fields"),
        (CSV.replace("a,1,2", "a,late,2"), r"row 3, column 't'.*late"),
        (CSV.replace("b,0,3", "b,0,much"), r"row 4, column 'x'.*much"),
        (CSV.replace("a,1,2", "a,0,2"), r"row 3: repeats series and time of row 2"),
        ("who,t,x\n", "no rows"),
        ("", "empty"),
        ("who,t,t\n1,2,3\n", "column 't': two columns"),
        ("t\n1\n", "no column 'who'"),
    ],
)
def test_csv_errors_name_file_row_and_column(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_csv(path, id="who", time="t")
    assert "bad.csv" in str(caught.value)


def test_a_word_far_down_is_found(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("t,x\n" + "".join(f"{n},{n}\n" for n in range(20_000)) + "20000,oops\n")
    with pytest.raises(DataError, match=r"row 20002, column 'x'.*oops"):
        read_csv(path, time="t")


def test_encoding_gzip_and_separator(tmp_path):
    latin = tmp_path / "latin.csv"
    latin.write_bytes("t;température\n0;1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"row 1.*latin-1"):
        read_csv(latin, time="t", separator=";")
    assert read_csv(latin, time="t", separator=";", encoding="latin-1").channels == ("température",)
    packed = gzip.compress(CSV.encode() * 50)
    for data, message in (
        (packed[: len(packed) // 2], "too early"),
        (packed[:20] + b"\0" * 20 + packed[40:], "damaged|early"),
    ):
        (tmp_path / "cut.csv.gz").write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_csv(tmp_path / "cut.csv.gz", time="t")
    with pytest.raises(DataError, match="no such file"):
        read_csv(tmp_path / "none.csv", time="t")
    with pytest.raises(DataError, match="folder"):
        read_csv(tmp_path, time="t")
    latin.write_text(CSV)
    with pytest.raises(DataError, match="which column"):
        read_csv(latin)


def test_a_bomb_is_not_unpacked(tmp_path):
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"0" * 2**27))
    with pytest.raises(DataError, match="unpacks to more"):
        read_csv(tmp_path / "bomb.csv.gz", time="t")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    data = SeriesSet([Series.of([0], [1])])
    for write in (write_csv, write_parquet):
        with pytest.raises(DataError, match="cannot be written"):
            write(data, tmp_path / "none" / "x")
    for encoding in ("undefined", "no such", "a\0b"):
        (tmp_path / "x.csv").write_text(CSV)
        with pytest.raises(DataError, match="encoding"):
            read_csv(tmp_path / "x.csv", time="t", encoding=encoding)


def folder_of_files(path, series=7, files=3):
    for file in range(files):
        ids = np.repeat(np.arange(series) + file * series, 3)
        table = pl.DataFrame({"who": ids, "t": np.tile([0.0, 1.0, 2.5], series), "x": ids * 1.0, "y": ids % 2})
        part = path / f"part={file}"
        part.mkdir()
        table.write_parquet(part / "data.parquet", row_group_size=5)


@pytest.mark.parametrize("block_points", [1, 7, 10**6])
def test_lazy_equals_eager(tmp_path, block_points):
    folder_of_files(tmp_path)
    options = {"id": "who", "time": "t", "values": ["x"], "label": "y"}
    eager, lazy = read_parquet(tmp_path, **options), scan_parquet(tmp_path, block_points=block_points, **options)
    assert lazy.lazy
    assert lazy == eager
    assert lazy.lengths.tolist() == [3] * 21
    assert lazy.summary() == eager.summary()
    assert lazy.select([20, 0]).ids == [20, 0]
    assert lazy.map(lambda s: s.points(slice(0, 1)))[3].values.tolist() == [[3.0]]
    assert np.all(np.diff(lazy.blocks) >= 0)
    assert lazy.in_memory().lazy is False


def test_folders_give_columns(tmp_path):
    folder_of_files(tmp_path)
    assert "part" in read_parquet(tmp_path, id="who", time="t").channels


def test_parquet_errors(tmp_path):
    pl.DataFrame({"who": [1, 2, 1], "t": [0, 1, 2], "x": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet, row 3, column 'who': series 1 comes back"):
        scan_parquet(tmp_path / "a.parquet", id="who", time="t")
    with pytest.raises(DataError, match="no column 'whom'"):
        scan_parquet(tmp_path / "a.parquet", id="whom", time="t")
    with pytest.raises(DataError, match="which column"):
        read_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no Parquet file"):
        read_parquet(tmp_path / "none.parquet", time="t")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 this is not it PAR1")
    for read in (read_parquet, scan_parquet):
        with pytest.raises(DataError, match=r"b\.parquet"):
            read(tmp_path / "b.parquet", id="who", time="t")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "times"),
        ('{"times": [1, "x"]}', "not a number"),
        ('{"times": [1, 2], "types": [0]}', "types"),
        ('{"times": [1], "types": [-1]}', "whole numbers"),
        ('{"times": [1], "types": [3], "num_types": 2}', "type"),
        ('{"times": [NaN]}', "finite"),
        ('{"times": [1], "num_types": "many"}', "num_types"),
        ('{"times": [1], "id": []}', "id"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_events_errors_name_the_line(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"times": [0.5]}}\n{line}\n')
    with pytest.raises(DataError, match=message) as caught:
        read_events(path)
    assert "bad.jsonl" in str(caught.value)


def test_lines_of_other_parts_are_counted(tmp_path):
    path = tmp_path / "parts.jsonl"
    path.write_text("".join(json.dumps({"times": [n], "split": "train" if n else "test"}) + "\n" for n in range(4)))
    data = read_events(path, keep=lambda found: found["split"] == "train")
    assert len(data) == 3
    assert list(data.notes.values()) == [1]


def test_lists_of_pairs_and_arrays():
    data = from_list([([2, 1], [[1.0], [2.0]]), np.zeros((3, 1))], labels=["u", "v"])
    assert data[0].times.tolist() == [1, 2]
    assert data[1].times.tolist() == [0, 1, 2]
    assert data.classes == ("u", "v")
    padded = from_arrays(np.array([[1.0, 2.0, np.nan], [np.nan, 1.0, np.nan]]), labels=[0.5, 1])
    assert padded.lengths.tolist() == [2, 2]
    assert list(padded.notes.values()) == [2]
    assert padded.classes is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_arrays(np.zeros(3)), "shape"),
        (lambda: from_arrays([["a"]]), "numbers"),
        (lambda: from_arrays(np.zeros((2, 3, 1)), np.zeros(4)), "times have shape"),
        (lambda: from_arrays(np.zeros((2, 3, 1)), labels=[1]), "1 labels for 2"),
        (lambda: from_arrays(np.zeros((2, 3, 1)), lengths=[4, 1]), "lengths"),
        (lambda: from_list([1], labels=[1, 2]), "2 labels for 1"),
        (lambda: from_list([([0], [[1], [2]])]), "1 times but 2 rows"),
    ],
)
def test_wrong_arrays_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()

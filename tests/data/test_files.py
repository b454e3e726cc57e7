import datetime as dt
import gzip
import json
import os
import stat

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contiformer.data import (
    DataError,
    EventSet,
    Schema,
    Series,
    SeriesSet,
    from_arrays,
    from_frame,
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
    with pytest.raises(DataError, match="the time column is not named"):
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


@pytest.mark.parametrize("block_points", [2, 10**6])
def test_lazy_channels_are_those_of_the_whole(tmp_path, block_points):
    pl.DataFrame({"who": [1, 1, 2, 2], "t": [0, 0, 0, 0], "v": list("abac"), "n": [1.0, 2, 3, 4]}).write_parquet(
        tmp_path / "long.parquet"
    )
    options = {"id": "who", "time": "t", "variable": "v", "value": "n"}
    lazy = scan_parquet(tmp_path / "long.parquet", block_points=block_points, **options)
    assert lazy == read_parquet(tmp_path / "long.parquet", **options)
    assert lazy.lengths.tolist() == [1, 1]
    wide = tmp_path / "wide"
    wide.mkdir()
    pl.DataFrame({"who": [1], "t": [0], "x": [1], "y": [2]}).write_parquet(wide / "1.parquet")
    pl.DataFrame({"who": [2], "t": [0], "y": [20], "x": [10]}).write_parquet(wide / "2.parquet")
    lazy = scan_parquet(wide, id="who", time="t", block_points=block_points)
    assert [one.values.tolist() for one in lazy] == [[[1, 2]], [[10, 20]]]


def test_lazy_lengths_and_notes_know_what_is_merged(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"who": [1, 1, 2, 2], "t": [0, 1, 0, 0], "x": [1.0, 2, 3, 5]}).write_parquet(path)
    options = {"id": "who", "time": "t", "duplicates": "mean"}
    eager, lazy = read_parquet(path, **options), scan_parquet(path, block_points=2, **options)
    assert lazy == eager
    assert lazy.lengths.tolist() == eager.lengths.tolist() == [2, 1]
    assert lazy.notes == eager.notes
    assert lazy.summary() == eager.summary()


def test_what_blocks_would_read_differently_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"who": [1, 2], "t": ["5", "2020-01-01"], "x": [1, 2]}).write_parquet(path)
    with pytest.raises(DataError, match="times as text"):
        scan_parquet(path, id="who", time="t")
    pl.DataFrame({"who": [1.0, 2.5], "t": [1, 2], "x": [1, 2]}).write_parquet(path)
    with pytest.raises(DataError, match="fractions"):
        scan_parquet(path, id="who", time="t")
    with pytest.raises(DataError, match="order"):
        scan_parquet(path, id="who", time="t", order="id")


def test_labels_of_a_lazy_set(tmp_path):
    path = tmp_path / "a.parquet"
    kinds = pl.Enum(["b", "a"])
    pl.DataFrame({"who": [1, 2], "t": [1, 2], "x": [1, 2], "y": pl.Series(["a", "b"], dtype=kinds)}).write_parquet(path)
    options = {"id": "who", "time": "t", "label": "y", "values": ["x"]}
    assert scan_parquet(path, block_points=1, **options).classes == read_parquet(path, **options).classes == ("a", "b")


def test_names_of_files_are_no_patterns(tmp_path):
    for name, x in (("a1", 111.0), ("a[1]", 222.0)):
        pl.DataFrame({"who": [1], "t": [0], "x": [x]}).write_parquet(tmp_path / f"{name}.parquet")
    for read in (read_parquet, scan_parquet):
        assert read(tmp_path / "a[1].parquet", id="who", time="t")[0].values.item() == 222


def test_a_folder_of_our_own_files_keeps_series_apart(tmp_path):
    write_parquet(SeriesSet([Series.of([0, 1], [1, 2])]), tmp_path / "a.parquet")
    write_parquet(SeriesSet([Series.of([0, 5], [100, 200])]), tmp_path / "b.parquet")
    assert [one.values.ravel().tolist() for one in read_parquet(tmp_path)] == [[1, 2], [100, 200]]
    write_parquet(SeriesSet([Series.of([0], [1], id="p")]), tmp_path / "a.parquet")
    write_parquet(SeriesSet([Series.of([0], [2], id="p")]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="two files"):
        read_parquet(tmp_path)


def test_a_word_in_a_column_nobody_asked_for_changes_nothing(tmp_path):
    rows = [f"{n // 5000},{n % 5000},{n},{0.5 * (n // 5000)},{n}" for n in range(20_000)]
    options = {"id": "who", "time": "t", "values": ["x"], "label": "y"}
    read = []
    for last in ("5", "note"):
        rows[-1] = f"3,4999,19999,1.5,{last}"
        (tmp_path / "a.csv").write_text("who,t,x,y,c\n" + "\n".join(rows) + "\n\n\n")
        read.append(read_csv(tmp_path / "a.csv", **options))
    assert read[0] == read[1]
    assert read[0].ids == [0, 1, 2, 3]


def test_ids_in_text_stay_apart(tmp_path):
    (tmp_path / "a.csv").write_text("who,t,x\n007,0,1\n7,0,2\n")
    assert read_csv(tmp_path / "a.csv", id="who", time="t").ids == ["007", "7"]


@pytest.mark.parametrize("name", ["NA", "None", "?", "nan", "007", "a,b", 'a"b'])
def test_odd_names_survive_csv_and_parquet(tmp_path, name):
    data = SeriesSet(
        [Series.of([0, 1], [1, 2], id=name, label=name, static=np.float32([0.1]))], channels=[name], classes=[name]
    )
    for write, read in ((write_csv, read_csv), (write_parquet, read_parquet)):
        write(data, tmp_path / "x.parquet")
        assert read(tmp_path / "x.parquet") == data


def test_times_that_are_no_whole_microseconds_are_not_rounded(tmp_path):
    data = SeriesSet([Series.of([1 / 3], [1])], schema=Schema(dates=True))
    write_csv(data, tmp_path / "x.csv")
    assert read_csv(tmp_path / "x.csv") == data


@pytest.mark.parametrize(
    "description",
    [
        '{"types": {"id": [1]}}',
        '{"schema": {"channels": [["x"]]}}',
        '{"schema": {"channels": 3}}',
        '{"schema": {"classes": 5}}',
        '{"schema": {"static": null}}',
        '{"format": 99}',
        "[" * 10_000,
    ],
)
def test_damaged_descriptions(tmp_path, description):
    whole = {"format": 1, "schema": {"channels": ["x"]}, "types": {"id": "int"}}
    text = description if description.startswith("[") else json.dumps(whole | json.loads(description))
    (tmp_path / "x.csv").write_text(f"# contiformer: {text}\nid,time,x\n1,0,5\n")
    with pytest.raises(DataError):
        read_csv(tmp_path / "x.csv")


def test_nothing_is_not_written(tmp_path):
    for data in (SeriesSet([]), SeriesSet([Series.of([0], np.zeros((1, 0)))])):
        with pytest.raises(DataError, match="nothing to write"):
            write_csv(data, tmp_path / "x")
    with pytest.raises(DataError, match="no sequences"):
        write_events(EventSet([]), tmp_path / "x")
    same = SeriesSet([Series.of([0], [1], static=[9])], schema=Schema(("x",), static=("x",)))
    with pytest.raises(DataError, match="would be called 'x'"):
        write_csv(same, tmp_path / "x")


def test_folders_give_columns(tmp_path):
    folder_of_files(tmp_path)
    assert "part" in read_parquet(tmp_path, id="who", time="t").channels


def test_parquet_errors(tmp_path):
    pl.DataFrame({"who": [1, 2, 1], "t": [0, 1, 2], "x": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet, row 3, column 'who': series 1 comes back"):
        scan_parquet(tmp_path / "a.parquet", id="who", time="t")
    with pytest.raises(DataError, match="no column 'whom'"):
        scan_parquet(tmp_path / "a.parquet", id="whom", time="t")
    with pytest.raises(DataError, match="the time column is not named"):
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
        (lambda: from_arrays([[[1], [2]], [[1]]]), "ragged"),
        (lambda: from_arrays(np.zeros((2, 2, 1)), [[0, 1], [0]]), "ragged"),
        (lambda: from_arrays(np.zeros((2, 3, 1)), lengths=["a", 1]), "lengths"),
    ],
)
def test_wrong_arrays_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_files_are_flushed_before_they_are_moved_and_folders_after(tmp_path, monkeypatch):
    done = []
    flush, move = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(stat.S_ISDIR(os.fstat(file).st_mode)), flush(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("moved"), move(*paths)))
    write_csv(SeriesSet([Series.of([0.0], [[1.0]])]), tmp_path / "file.csv")
    assert done == [False, "moved", True]


def test_categories_of_a_lazy_set_are_those_of_the_whole(tmp_path):
    frame = pl.DataFrame({"who": ["a", "a", "b", "c"], "t": [0.0, 1.0, 0.0, 0.0], "ward": ["ICU", "ER", "home", None]})
    frame = frame.with_columns(x=1.0, died=pl.Series([True, True, False, None]))
    frame.write_parquet(tmp_path / "data.parquet")
    roles = {"id": "who", "time": "t", "label": "died", "categorical": ["ward"]}
    lazy = scan_parquet(tmp_path / "data.parquet", block_points=1, **roles)
    assert lazy.channels == ("ward=ER", "ward=ICU", "ward=home", "x")
    assert lazy.in_memory() == read_parquet(tmp_path / "data.parquet", **roles)
    assert lazy.labels == [True, False, None]


def test_truth_labels_and_kinds_of_times_survive_files(tmp_path):
    frame = {"who": ["a", "b"], "t": ["00:30", "01:00"], "x": [1.0, 2.0], "y": [True, False]}
    data = from_frame(frame, id="who", time="t", label="y")
    write_csv(data, tmp_path / "data.csv")
    assert read_csv(tmp_path / "data.csv") == data
    write_parquet(data, tmp_path / "data.parquet")
    assert read_parquet(tmp_path / "data.parquet") == data


def test_lists_with_two_kinds_of_times_are_refused():
    dates, zoned = np.array(["2024-01-01"], "M8[D]"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    assert from_list([(zoned, [1.0])]).schema.time_kind == "dates with a time zone"
    with pytest.raises(DataError, match="times of series 0 are dates, those of series 2 numbers; use one kind"):
        from_list([(dates, [1.0]), (np.zeros(0), np.zeros((0, 1))), ([0.0], [1.0])])
    with pytest.raises(DataError, match="those of series 1 dates with a time zone"):
        from_list([(dates, [1.0]), (zoned, [1.0])])


@pytest.mark.parametrize(("encoding", "advice"), [("utf-16", "utf-16"), ("latin-1", "latin-1")])
def test_the_encoding_of_a_table_is_guessed_in_the_error(tmp_path, encoding, advice):
    path = tmp_path / "a.csv"
    path.write_bytes("id,größe,t\na,1,0\n".encode(encoding))
    with pytest.raises(DataError, match=f'row 1: byte .* is not utf-8; save it as utf-8, or try encoding="{advice}"'):
        read_csv(path, id="id", time="t")
    assert read_csv(path, id="id", time="t", encoding=encoding).channels == ("größe",)


def test_another_separator_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id;t;x\na;0;1\n")
    with pytest.raises(DataError, match="columns are separated by ';'; pass separator=';'"):
        read_csv(path, id="id", time="t")
    assert read_csv(path, id="id", time="t", separator=";").channels == ("x",)

import gzip
import re

import numpy as np
import pytest
from hypothesis import given

from contiformer.data.errors import DataError
from contiformer.data.readers import ts
from contiformer.data.readers.ts import read_header, read_ts
from contiformer.data.readers.ts_writer import write_ts
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from tests.data.archive_sets import SHARED, UEA, series_sets

HEAD = "@problemName p\n@classLabel true a b\n@data\n"
NAN = float("nan")


@pytest.fixture
def read(tmp_path):
    def from_text(text, **options):
        path = tmp_path / "case.ts"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return read_ts(path, **options)

    return from_text


def same(values, wanted):
    np.testing.assert_array_equal(values, np.asarray(wanted, float))


def test_cases_dimensions_values_and_labels(read):
    data = read(HEAD + "1,2.5,-3e2:4,5,6:b\n7,8,9:.5,+1,0:a\n")
    same(data[0].values, [[1, 4], [2.5, 5], [-300, 6]])
    same(data[0].times, [0, 1, 2])
    assert data.labels == ["b", "a"]
    assert data.classes == ("a", "b")
    assert data.ids == [0, 1]
    assert data.channels == ("channel_0", "channel_1")
    assert data.notes == {}


def test_cases_of_different_length(read):
    data = read(HEAD + "1,2:3,4:a\n5:6:b\n")
    assert data.lengths.tolist() == [2, 1]
    same(data[1].values, [[5, 6]])
    same(data[1].times, [0])


@pytest.mark.parametrize("missing", ["?", "NaN", "nan", "NAN", " ? "])
def test_missing_values(read, missing):
    data = read(HEAD + f"1,{missing},3:4,5,6:a\n")
    same(data[0].values, [[1, 4], [NAN, 5], [3, 6]])


def test_missing_values_are_counted_where_the_header_denies_them(read):
    for line in ("1,?:?,4:a", "1,?:?,4,5:a"):
        data = read(f"@missing false\n{HEAD}{line}\n")
        assert data.notes["missing values in spite of @missing false"] == 2


def test_shorter_dimensions_are_filled_up_and_counted(read):
    data = read(HEAD + "1,2,3:4:a\n1:2,3:b\n1,2:3,4:b\n::b\n:5:a\n")
    same(data[0].values, [[1, 4], [2, NAN], [3, NAN]])
    same(data[1].values, [[1, 2], [NAN, 3]])
    assert data.lengths.tolist() == [3, 2, 2, 0, 1]
    assert data.notes == {"dimensions without a value up to the length of their case, filled with NaN": 3}


def test_the_file_may_be_gzipped_have_other_line_ends_blank_lines_comments_tabs_and_a_byte_order_mark(tmp_path, read):
    plain = read(HEAD + "1,2:3,4:a\n5,6:7,8:b\n")
    text = "ï»¿# a comment\r\n\r\n@CLASSLABEL\ttrue a b\r\n@Data\r\n1,2:3,4:a\r\n# more\r\n\r\n5, 6 : 7 ,8: b \r\n"
    assert read(text) == plain
    assert read(gzip.compress(text.encode("latin-1"))) == plain
    assert read(text.encode("utf-16"), encoding="utf-16") == plain


def test_labels_are_decoded(read):
    text = "@classLabel true süß b\n@data\n1:süß\n"
    assert read(text).labels == ["süß"]
    assert read(text.encode(), encoding="utf-8").labels == ["süß"]


def test_numbers_as_labels(read):
    data = read("@targetLabel true\n@data\n1,2:3,4:0.25\n5,6:7,8: -1e3\n")
    assert data.labels == [0.25, -1000.0]
    assert data.classes is None
    assert read("@targetLabel true\n@data\n1,2:3:0.25\n").labels == [0.25]


def test_no_labels(read):
    data = read("@classLabel false\n@data\n1,2:3,4\n")
    assert data.labels == [None]
    assert data[0].channels == 2


def test_time_stamps_are_merged_on_their_union(read):
    data = read("@timeStamps true\n" + HEAD + "(3,1),(0.5,2):(3,?),(1,4):a\n::b\n(1,2),(1,3):(1,4):a\n")
    same(data[0].times, [0.5, 1, 3])
    same(data[0].values, [[2, NAN], [NAN, 4], [1, NAN]])
    assert len(data[1]) == 0
    same(data[2].times, [1, 1])
    same(data[2].values, [[2, 4], [3, NAN]])
    assert not data.schema.dates
    assert sum(data.notes.values()) == 3


def test_time_stamps_may_be_dates(read):
    head = "@timeStamps true\n" + HEAD
    data = read(head + "(1970-01-01 00:01:00,1),(1970-01-02,2):(1970-01-01T00:02:00.5,3):a\n")
    same(data[0].times, [60, 120.5, 86400])
    assert data.schema.dates
    assert data[0].channels == 2
    zoned = read(head + "(1970-01-01T01:00:00+01:00,1),(1970-01-01T00:00:30Z,2):a\n")
    same(zoned[0].times, [0, 30])


@pytest.mark.parametrize(
    ("text", "row", "problem"),
    [
        (HEAD + "1,2:a\n1,x:a\n", 5, "'x' is not a number"),
        (HEAD + "1,2:a\n1,1_0:a\n", 5, "'1_0' is not a number"),
        (HEAD + "1,,2:a\n", 4, "nothing between two separators"),
        (HEAD + "1,2,:a\n", 4, "nothing between two separators"),
        (HEAD + "1,-?:a\n", 4, "'-?' is not a number"),
        (HEAD + "1,inf:a\n", 4, "infinite"),
        (HEAD + "1,1e999:a\n", 4, "infinite"),
        (HEAD + "1,2:a\n\n# x\n1,2:c\n", 7, "'c' is none of the classes"),
        (HEAD + "1,2:3,4\n", 4, "'3,4' is none of the classes"),
        (HEAD + "1,2:\n", 4, "label is missing"),
        (HEAD + "1,2:?\n", 4, "label is missing"),
        (HEAD + "1,2\n", 4, "no label"),
        (HEAD + "1,2:3,4:a\n1,2:a\n", 5, "1 dimensions instead of 2"),
        (HEAD, 3, "no case"),
        ("@dimensions 3\n" + HEAD + "1:2:a\n", 5, "2 dimensions instead of 3"),
        ("@univariate true\n" + HEAD + "1:2:a\n", 5, "2 dimensions instead of 1"),
        ("@univariate true\n@dimensions 2\n" + HEAD, 2, "@univariate true, but @dimensions 2"),
        ("@seriesLength 3\n" + HEAD + "1,2,3:a\n1,2:a\n", 6, "2 values instead of 3"),
        ("@equalLength true\n" + HEAD + "1,2,3:a\n1,2:a\n", 6, "2 values instead of 3"),
        ("@equalLength true\n" + HEAD + "1,2,3:1,2:a\n", 5, "2 values instead of 3"),
        ("@missing maybe\n" + HEAD, 1, "@missing is 'maybe'"),
        ("@dimensions two\n" + HEAD, 1, "@dimensions is 'two'"),
        ("@dimensions 0\n" + HEAD, 1, "@dimensions is '0'"),
        ("@seriesLength -1\n" + HEAD, 1, "@seriesLength is '-1'"),
        ("@classLabels true a\n@data\n", 1, "unknown keyword '@classLabels'"),
        ("@\n" + HEAD, 1, "unknown keyword '@'"),
        ("@missing false\n@missing false\n" + HEAD, 2, "again, after line 1"),
        ("@classLabel true\n@data\n1:a\n", 1, "names no class"),
        ("@classLabel\n@data\n1:a\n", 1, "@classLabel is ''"),
        ("@classLabel true a b a\n@data\n1:a\n", 1, "'a' twice"),
        ("@classLabel true a\n@targetLabel true\n@data\n1:a\n", 2, "both"),
        ("@problemName p\n@data\n1:a\n", 2, "neither @classLabel nor @targetLabel"),
        ("@classLabel true a b\n1,2:a\n", 2, "no header line"),
        ("@classLabel true a b\n", None, "no @data"),
        ("@targetLabel true\n@data\n1:2\n1:x\n", 4, "'x' is not a number"),
        ("@targetLabel true\n@data\n1:2\n1:?\n", 4, "label is missing"),
        ("@timeStamps true\n" + HEAD + "(0,1),(1,2:a\n", 5, "where (time,value) should be"),
        ("@timeStamps true\n" + HEAD + "(0,1)(1,2):a\n", 5, "where (time,value) should be"),
        ("@timeStamps true\n" + HEAD + "(0,1),p:a\n", 5, "where (time,value) should be"),
        ("@timeStamps true\n" + HEAD + "1,2:a\n", 5, "where (time,value) should be"),
        ("@timeStamps true\n" + HEAD + "(noon,1):a\n", 5, "'noon' is neither a number nor an ISO datetime"),
        ("@timeStamps true\n" + HEAD + "(nan,1):a\n", 5, "not a finite time"),
        ("@timeStamps true\n" + HEAD + "(0,x):a\n", 5, "'x' is not a number"),
        ("@timeStamps true\n" + HEAD + "(0,1):a\n(2020-01-01,1):a\n", 6, "those before were numbers"),
        ("@timeStamps true\n" + HEAD + "(2020-01-01,1),(2020-01-01T00Z,1):a\n", 5, "those before were dates without"),
        ("@timeStamps true\n" + HEAD + "(0001-01-01T00:00+12:00,1):a\n", 5, "outside the years"),
        ("#contiformer {broken\n" + HEAD, 1, "comment of contiformer is damaged"),
        ('#contiformer {"ids": 3}\n' + HEAD, 1, "comment of contiformer is damaged"),
        ("#contiformer " + '{"ids":' * 100_000 + "\n" + HEAD, 1, "comment of contiformer is damaged"),
        ('#contiformer {"ids": [3]}\n' + HEAD + "1:a\n2:b\n", None, "has 1 ids, the data have 2"),
        ('#contiformer {"channels": []}\n' + HEAD + "1:a\n", None, "has 0 channels, the data have 1"),
        (" \n", None, "empty"),
        (gzip.compress(HEAD.encode() + b"1:a\n" * 100, mtime=0)[:-20], None, "ends too early"),
    ],
)
def test_errors_say_where(read, text, row, problem):
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(text)
    assert caught.value.row == row
    assert caught.value.file.endswith("case.ts")
    assert caught.value.remedy or "empty" in problem


def test_wrong_encoding(read):
    with pytest.raises(DataError, match="0xfc is not utf-8") as caught:
        read(HEAD + "1:ü\n", encoding="utf-8")
    assert caught.value.row == 4


def test_few_values_do_not_become_a_huge_table(read):
    with pytest.raises(DataError, match="would become a table of 50000 times and 50001 channels"):
        read(HEAD + "1," * 49_999 + "1" + ":" * 50_000 + ":a\n")


@given(series_sets())
def test_round_trip(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("ts") / "set.ts"
    write_ts(data, path)
    again = read_ts(path)
    assert again == data
    assert [series.times.dtype for series in again] == [np.float64] * len(data)


@given(series_sets(stamped=False))
def test_reading_line_by_line_gives_the_same(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("ts") / "set.ts"
    write_ts(data, path)
    text = path.read_text("latin-1")
    header, start = read_header(text)
    rows, lines = ts._cases(text, start, header.rows["data"])
    careful = ts._read_line_by_line(rows, lines, header)
    assert careful == data
    if data.lengths.min() > 0:
        assert ts._read_at_once(lines, header) == careful


def test_gzipped_on_writing_and_named(tmp_path):
    data = SeriesSet([Series.of([0, 1], [1.0, 2.0], label="a", id=0)], classes=["a"])
    write_ts(data, tmp_path / "x.ts.gz")
    assert read_ts(tmp_path / "x.ts.gz") == data
    text = gzip.decompress((tmp_path / "x.ts.gz").read_bytes()).decode()
    assert text == (
        "@problemName x\n@timeStamps false\n@missing false\n@univariate true\n@dimensions 1\n@equalLength true\n"
        "@seriesLength 2\n@classLabel true a\n@data\n1.0,2.0:a\n"
    )
    write_ts(data, tmp_path / "x.ts", problem_name="waves")
    assert (tmp_path / "x.ts").read_text().startswith("@problemName waves\n")
    write_ts(data, tmp_path / "Ω ü.ts")
    assert read_ts(tmp_path / "Ω ü.ts") == data


def test_dates_are_written_as_dates(tmp_path):
    data = SeriesSet([Series.of(np.array(["2024-05-01T13:45", "2024-05-02"], "datetime64[s]"), [1.0, 2.0], id=0)])
    data = SeriesSet(list(data), schema=data.schema.from_dict(data.schema.to_dict() | {"dates": True}))
    write_ts(data, tmp_path / "x.ts")
    assert "(2024-05-01T13:45:00.000000,1.0)" in (tmp_path / "x.ts").read_text()
    assert read_ts(tmp_path / "x.ts") == data


def _one(**options):
    return Series.of([0, 1], [1.0, 2.0], **options)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (SeriesSet([]), "at least one series"),
        (SeriesSet([_one(label="a b")], classes=["a b"]), "blank or a colon"),
        (SeriesSet([_one(label="a:b")], classes=["a:b"]), "blank or a colon"),
        (SeriesSet([_one(label="a\x85b")], classes=["a\x85b"]), "blank or a colon"),
        (SeriesSet([_one(label="")], classes=[""]), "not a text"),
        (SeriesSet([_one(label=1)], classes=[1]), "not a text"),
        (SeriesSet([_one(label="Ω")], classes=["Ω"]), "not a text in latin-1"),
        (SeriesSet([_one(label="a")]), "not a finite number"),
        (SeriesSet([_one(label=1.0), _one()]), "not a finite number"),
        (SeriesSet([_one(label=NAN)]), "not a finite number"),
        (SeriesSet([_one(static=[1.0])]), "static"),
        (SeriesSet([_one(target_values=[1.0, 2.0])]), "target series"),
        (SeriesSet([_one(id=(1, 2))]), "neither text nor a whole number"),
        (SeriesSet([_one(id=object())]), "neither text nor a whole number"),
        (SeriesSet([_one(id=1.5)]), "neither text nor a whole number"),
        (SeriesSet([Series(np.arange(1.0), np.array([[np.inf]]))]), "infinite"),
        (SeriesSet([Series(np.zeros(0), np.zeros((0, 1)))]), "blank"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, data, problem):
    with pytest.raises(DataError, match=problem):
        write_ts(data, tmp_path / "x.ts")
    assert not list(tmp_path.iterdir())


class _Promised:
    """A lazy source whose series has a label that is none of the classes."""

    lengths, blocks = np.array([2]), np.array([0])

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return _one(label="z")


def test_lazy_sets_are_checked_before_writing(tmp_path):
    with pytest.raises(DataError, match="label 'z'"):
        write_ts(SeriesSet(_Promised(), classes=["a"]), tmp_path / "x.ts")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a\nb", "a b", "Ω", ""])
def test_problem_names_are_words(tmp_path, name):
    with pytest.raises(DataError, match="problem name"):
        write_ts(SeriesSet([_one()]), tmp_path / "x.ts", problem_name=name)


def _table():
    """Rows of the table in the README of the shared data: name, counts, lengths, dimensions, classes."""
    readme = SHARED / "README.md"
    text = readme.read_text() if readme.exists() else ""
    found = re.findall(r"^\| (\w+) \| (\d+) / (\d+|-) \| (\d+)(?:-(\d+))?[^|]*\| (\d+) \| (\d+) \|", text, re.MULTILINE)
    return {row[0]: row[1:] for row in found if (UEA / row[0]).is_dir()}


@pytest.mark.skipif(not UEA.is_dir(), reason="the UEA archive is not here")
def test_every_set_is_in_the_table():
    assert set(_table()) == {folder.name for folder in UEA.iterdir()}


@pytest.mark.skipif(not UEA.is_dir(), reason="the UEA archive is not here")
@pytest.mark.parametrize("name", sorted(_table()))
def test_sizes_of_the_archive(name):
    train, test, shortest, longest, dimensions, classes = _table()[name]
    lengths = []
    for part, count in (("TRAIN", train), ("TEST", test)):
        path = UEA / name / f"{name}_{part}.ts.gz"
        assert path.exists() == (count != "-")
        if count == "-":
            continue
        data = read_ts(path)
        assert len(data) == int(count)
        assert len(data.channels) == int(dimensions)
        assert len(data.classes) == len(set(data.labels)) == int(classes)
        assert data.notes == {}
        assert not any(np.isnan(series.values).any() for series in data)
        lengths.append(data.lengths)
    lengths = np.concatenate(lengths)
    assert (lengths.min(), lengths.max()) == (int(shortest), int(longest or shortest))

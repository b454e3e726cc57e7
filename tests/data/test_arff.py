import gzip
import re

import numpy as np
import pytest
from hypothesis import given

from contiformer.data.errors import DataError
from contiformer.data.readers import arff
from contiformer.data.readers.arff import read_arff, write_arff
from contiformer.data.readers.ts import read_ts
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from tests.data.archive_sets import UEA, series_sets

FLAT = "@relation r\n@attribute t0 numeric\n@attribute t1 REAL\n@attribute class {a,'b c'}\n@data\n"
DEEP = (
    "@relation 'the r'\n@attribute x relational\n  @attribute t0 numeric\n  @attribute t1 integer\n@end x\n"
    "@attribute class {a,b}\n@data\n"
)
NAN = float("nan")


@pytest.fixture
def read(tmp_path):
    def from_text(text, **options):
        path = tmp_path / "case.arff"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return read_arff(path, **options)

    return from_text


def same(values, wanted):
    np.testing.assert_array_equal(values, np.asarray(wanted, float))


@pytest.mark.parametrize("row", ["1,2.5,'b c'", " 1 , 2.5 , 'b c' ", '1,2.5,"b c"', "'1',2.5,b c"])
def test_univariate(read, row):
    data = read(FLAT + f"-3,4e1,a\n{row}\n")
    same(data[0].values, [[-3], [40]])
    same(data[1].values, [[1], [2.5]])
    same(data[1].times, [0, 1])
    assert data.labels == ["a", "b c"]
    assert data.classes == ("a", "b c")
    assert data.ids == [0, 1]


@pytest.mark.parametrize("row", [r"'5,?\n7,8',b", r'"5,?\n7,8",b', r"'5, ? \n7,8', b", r"""'5,?\n7,8',"b" """])
def test_relational(read, row):
    data = read(DEEP + r"'1,2\n3,4',a" + f"\n{row}\n")
    same(data[0].values, [[1, 3], [2, 4]])
    same(data[1].values, [[5, 7], [NAN, 8]])
    assert data.labels == ["a", "b"]
    assert data.notes == {}


def test_padding_is_left_out_and_counted(read):
    data = read(DEEP + "'1,?\\n3,?',a\n'?,?\\n?,?',b\n'?,1\\n?,?',a\n")
    assert data.lengths.tolist() == [1, 0, 2]
    assert data.notes == {"points at the end where nothing was observed, taken as padding": 3}


def test_the_label_may_be_anywhere_a_number_or_absent(read):
    text = "@attribute 'the class' {a,b}\n@attribute t0 numeric\n@attribute y numeric\n@data\nb,1,2\na,3,?\n"
    data = read(text)
    same(data[0].values, [[1], [2]])
    assert data.labels == ["b", "a"]
    numbers = "@attribute t0 numeric\n@attribute y numeric\n@data\n1,2\n3,4.5\n"
    assert read(numbers).labels == [None, None]
    assert read(numbers).lengths.tolist() == [2, 2]
    regression = read(numbers, label="y")
    assert regression.labels == [2.0, 4.5]
    assert regression.classes is None
    assert regression.lengths.tolist() == [1, 1]
    assert read(DEEP.replace("@attribute class {a,b}\n", "") + "'1,2\\n3,4'\n")[0].channels == 2


def test_comments_blank_lines_line_ends_tabs_gzip_and_byte_order_mark(read):
    plain = read(FLAT + "1,2,a\n3,4,b c\n")
    text = "ï»¿% c\r\n\r\n@RELATION\tr\r\n@Attribute\tt0\tnumeric\r\n@attribute t1 real\r\n"
    text += "@attribute class{a,\"b c\"}\r\n@DATA\r\n% c\r\n1,2,a\r\n\r\n3,4,'b c'\r\n"
    assert read(text) == plain
    assert read(gzip.compress(text.encode("latin-1"))) == plain


@pytest.mark.parametrize(
    ("text", "row", "problem"),
    [
        (FLAT + "1,2,a\n1,x,a\n", 7, "'x' is not a number"),
        (FLAT + "1,,a\n", 6, "nothing between"),
        (FLAT + "1,inf,a\n", 6, "infinite"),
        (FLAT + "1,a\n", 6, "2 fields for 3 attributes"),
        (FLAT + "1,2,3,a\n", 6, "4 fields for 3 attributes"),
        (FLAT + "1:2,3,a\n", 6, "'1:2' is not a number"),
        (FLAT + "1,2,?\n", 6, "label is missing"),
        (FLAT + "1,2,\n", 6, "label is missing"),
        (FLAT + "1,2,c\n", 6, "'c' is none of the classes"),
        (FLAT + "1,2,'a\n", 6, "is not closed"),
        (FLAT + "{0 1, 2 a}\n", 6, "sparse"),
        (FLAT, 5, "no row after @data"),
        (DEEP + "'1,2\\n3,4',a\n'1,2',a\n", 9, "1 dimensions, those before had 2"),
        (DEEP + "'1,2\\n3',a\n", 8, "1 values for 2 attributes"),
        (DEEP + "'1,2\\n3,4,5',a\n", 8, "3 values for 2 attributes"),
        (DEEP + "'1,2:3,4',a\n", 8, "3 values for 2 attributes"),
        (DEEP + "'1,2\\n3,y',a\n", 8, "'y' is not a number"),
        (DEEP + "1,2,a\n", 8, "3 fields for 2 attributes"),
        ("@relation r\n@attribute t numeric\n", None, "no @data"),
        ("@attribute x relational\n@attribute t numeric\n@data\n", 3, "'@data' does not belong here"),
        ("@end x\n@data\n", 1, "'@end x' does not belong here"),
        ("1,2\n@data\n", 1, "'1,2' does not belong here"),
        ("@attribute\n@data\n", 1, "without name"),
        ("@attribute t\n@data\n", 1, "the type ''"),
        ("@attribute t string\n@data\n", 1, "the type 'string'"),
        ("@attribute t {a,b\n@data\n", 1, "the type '{a,b'"),
        ("@attribute t {a,a}\n@data\n", 1, "repeated class"),
        ("@attribute t {}\n@data\n", 1, "empty or repeated"),
        ("@attribute t {'a}\n@data\n", 1, "is not closed"),
        ("@attribute x relational\n@attribute t {a,b}\n@end x\n@data\n", 2, "a nominal attribute within"),
        ("@attribute x relational\n@end x\n@data\n1\n", 3, "no numeric attribute"),
        ("@attribute c {a}\n@data\na\n", 2, "no numeric attribute"),
        ("@data\na\n", 1, "no numeric attribute"),
        ("@attribute c {a}\n@attribute d {a}\n@data\na\n", 3, "2 attributes have classes: c, d"),
        ("@attribute t real\n@attribute x relational\n@attribute t real\n@end x\n@data\n", 2, "a relational attribute"),
        ('%contiformer {"label": "y"}\n@attribute t real\n@data\n1\n', 3, "no attribute is called 'y'"),
        ('%contiformer {"lengths": [0]}\n@attribute t real\n@data\n1\n', None, "lengths that do not fit"),
        ('%contiformer {"lengths": [-1]}\n@attribute t real\n@data\n?\n', None, "lengths that do not fit"),
        ('%contiformer {"lengths": [1, 1]}\n@attribute t real\n@data\n1\n', None, "lengths that do not fit"),
        (gzip.compress(FLAT.encode() + b"1,2,a\n" * 100, mtime=0)[:-20], None, "ends too early"),
    ],
)
def test_errors_say_where(read, text, row, problem):
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(text)
    assert caught.value.row == row
    assert caught.value.file.endswith("case.arff")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("label", "problem"), [("klass", "did you mean 'class'"), ("x", "relational"), ("t0", "no attribute")]
)
def test_labels_that_are_none(read, label, problem):
    with pytest.raises(DataError, match=problem):
        read(DEEP + "'1,2\\n3,4',a\n", label=label)


def test_the_label_is_missing_where_it_is_a_number(read):
    for text in ("?", "nan"):
        with pytest.raises(DataError, match="label is missing"):
            read(f"@attribute t real\n@attribute y real\n@data\n1,{text}\n", label="y")


@given(series_sets(stamped=False, phrases=True).filter(lambda data: data.lengths.max() > 0))
def test_round_trip(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("arff") / "set.arff"
    write_arff(data, path)
    assert read_arff(path) == data


@given(series_sets(stamped=False).filter(lambda data: data.lengths.max() > 0))
def test_reading_line_by_line_gives_the_same(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("arff") / "set.arff"
    write_arff(data, path)
    text = path.read_text("latin-1")
    header = arff._header(text)
    layout = arff._layout(header, None)
    rows, lines = arff._rows(text, header)
    careful, fast = arff._one_by_one(rows, lines, layout), arff._at_once(lines, layout)
    if fast is not None:
        assert (fast[0], *fast[2:]) == (careful[0], *careful[2:])
        same(fast[1], careful[1])
    assert fast is not None or data.classes is None or any("'" in line or ":" in line for line in text.splitlines())


def test_written_text(tmp_path):
    series = [Series.of([0, 1], [[1, 2], [NAN, 3]], label="a b", id=0), Series.of([0], [[4, 5]], label="c", id=1)]
    data = SeriesSet(series, classes=["a b", "c"])
    write_arff(data, tmp_path / "x.arff.gz", relation="it's")
    text = gzip.decompress((tmp_path / "x.arff.gz").read_bytes()).decode()
    assert text == (
        "@relation 'it\\'s'\n@attribute series relational\n@attribute t0 numeric\n@attribute t1 numeric\n@end series\n"
        "@attribute class {'a b',c}\n@data\n'1.0,?\\n2.0,3.0','a b'\n'4.0,?\\n5.0,?',c\n"
    )
    assert read_arff(tmp_path / "x.arff.gz") == data


def _one(**options):
    return Series.of([0, 1], [1.0, 2.0], **options)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (SeriesSet([]), "at least one series"),
        (SeriesSet([Series.of([0, 2], [1.0, 2.0])]), "times other than"),
        (SeriesSet([Series(np.zeros(0), np.zeros((0, 1)))]), "no series has a point"),
        (SeriesSet([_one(label="")], classes=[""]), "not a text"),
        (SeriesSet([_one(label=1)], classes=[1]), "not a text"),
        (SeriesSet([_one(label="Ω")], classes=["Ω"]), "not a text in latin-1"),
        (SeriesSet([_one(label="a")]), "not a finite number"),
        (SeriesSet([_one(static=[1.0])]), "static"),
        (SeriesSet([_one(id=(1, 2))]), "neither text nor a whole number"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, data, problem):
    with pytest.raises(DataError, match=problem):
        write_arff(data, tmp_path / "x.arff")
    assert not list(tmp_path.iterdir())


def test_names_beyond_latin_1_are_refused(tmp_path):
    with pytest.raises(DataError, match="not in latin-1"):
        write_arff(SeriesSet([_one()]), tmp_path / "x.arff", relation="Ω")


@pytest.mark.skipif(not UEA.is_dir(), reason="the UEA archive is not here")
@pytest.mark.parametrize("name", ["JapaneseVowels", "BasicMotions"])
def test_a_set_of_the_archive_survives_arff(tmp_path, name):
    data = read_ts(UEA / name / f"{name}_TRAIN.ts.gz")
    write_arff(data, tmp_path / "x.arff")
    assert read_arff(tmp_path / "x.arff") == data

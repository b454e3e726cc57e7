"""Whatever the bytes are: a valid set or a DataError with the file in it."""

import gzip
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contiformer.data.errors import DataError
from contiformer.data.readers import arff, ts
from contiformer.data.readers.arff import read_arff
from contiformer.data.readers.ts import read_ts
from contiformer.data.readers.ts_header import read_header
from contiformer.data.series import Series

TS = [
    b"@problemName p\n@timeStamps false\n@missing true\n@univariate false\n@dimensions 2\n@equalLength true\n"
    b"@seriesLength 3\n@classLabel true a b\n@data\n1.5,?,-3e2:4,5,6:a\n7,8,9:NaN,11,12:b\n",
    b"# c\n@classLabel true x\n@data\n1,2:3:x\n1::x\n\n4,5,6:7,8,9:x\n",
    b"@targetLabel true\n@data\n1,2,3:0.5\n4,5:-1e3\n",
    b"@timeStamps true\n@classLabel true u v\n@data\n(0,1),(2.5,?):(1,3):u\n(1,1),(1,2)::v\n",
    b"@timeStamps true\n@classLabel false\n@data\n(2024-01-01T10:00:00,1),(2024-01-02 11:30:00,2):(2024-01-01,3)\n",
    b'#contiformer {"channels": ["pH", "T"], "ids": ["a", 7], "dates": true}\n'
    b"@classLabel true k\n@data\n1:2:k\n3:4:k\n",
]
ARFF = [
    b"@relation r\n@attribute t0 numeric\n@attribute t1 real\n@attribute class {a,'b c'}\n"
    b"@data\n1,2.5,a\n?,-4e1,'b c'\n",
    b"% c\n@relation 'r'\n@attribute x relational\n@attribute t0 numeric\n@attribute t1 numeric\n@end x\n"
    b'@attribute class {a,"b\'"}\n@data\n\'1,2\\n3,4\',a\n"5,?\\n7,?","b\'"\n',
    b'%contiformer {"label": "y", "lengths": [1, 2]}\n@attribute t0 real\n@attribute t1 real\n@attribute y real\n'
    b"@data\n1,?,5\n2,?,6\n",
]
FORMATS = {"ts": (read_ts, TS), "arff": (read_arff, ARFF)}
ODD = [
    b"",
    b"?",
    b":",
    b",",
    b"\n",
    b"(",
    b")",
    b"'",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"@data\n",
    b"1e999",
    b"nan",
    b"\x00",
    b"\xff",
    b"-",
]


def check(path, content, name):
    """The set, or None where it was refused."""
    path.write_bytes(content)
    file = None
    try:
        data = FORMATS[name][0](path)
    except DataError as error:
        file = error.file
    if file is not None:
        assert file == str(path)
        return None
    assert len(data)
    for series in data:
        assert Series.of(series.times, series.values).times.tolist() == series.times.tolist()
    return data


def mutated(content, draw):
    """Bytes flipped, put in or taken out; lines cut, doubled or swapped."""
    for _ in range(draw.randint(1, 3)):
        lines = content.splitlines(keepends=True) or [b""]
        at, line = draw.randrange(len(content) + 1), draw.randrange(len(lines))
        match draw.randrange(7):
            case 0 if at < len(content):
                content = content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]
            case 1:
                content = content[:at] + draw.choice(ODD) + content[at:]
            case 2:
                content = content[:at] + content[at + draw.randint(1, 5) :]
            case 3:
                content = b"".join(lines[:line] + lines[line + 1 :])
            case 4:
                content = b"".join(lines[: line + 1] + lines[line:])
            case 5:
                content = b"".join(draw.sample(lines, len(lines)))
            case _:
                content = content[:at]
    return content


@pytest.mark.parametrize("name", FORMATS)
@given(content=st.binary(max_size=300), packed=st.booleans())
def test_arbitrary_bytes(tmp_path_factory, name, content, packed):
    path = tmp_path_factory.getbasetemp() / f"fuzz.{name}"
    check(path, gzip.compress(content) if packed else content, name)


@settings(max_examples=200)
@pytest.mark.parametrize("name", FORMATS)
@given(rest=st.text("0123456789.eE+-,:?()'\"{}\\nNaTZ @#%\n\t\r", max_size=80), start=st.integers(0, 5))
def test_arbitrary_cases_after_a_valid_header(tmp_path_factory, name, rest, start):
    seeds = FORMATS[name][1]
    header = seeds[start % len(seeds)].partition(b"@data\n")[0]
    check(tmp_path_factory.getbasetemp() / f"fuzz.{name}", header + b"@data\n" + rest.encode(), name)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(tmp_path, name):
    path, draw = tmp_path / f"fuzz.{name}", random.Random(0)
    results = []
    for n in range(1500):
        content = mutated(draw.choice(FORMATS[name][1]), draw)
        if n % 5 == 0:
            content = gzip.compress(content, 1)
            content = mutated(content, draw) if n % 10 == 0 else content
        results.append(check(path, content, name) is None)
    # most damage hits the header of such short files, but neither outcome may be rare enough to go untested
    assert min(sum(results), len(results) - sum(results)) >= 100


def test_the_fast_way_takes_nothing_that_the_careful_way_refuses_or_reads_otherwise():
    draw, both = random.Random(1), 0
    for _ in range(3000):
        text = mutated(draw.choice(TS[:3]), draw).decode("latin-1")
        try:
            header, start = read_header(text)
            rows, lines = ts._cases(text, start, header.data_row)
            fast = ts._at_once(lines, header)
        except DataError:
            continue
        if fast is not None:
            assert fast == ts._one_by_one(rows, lines, header)
            both += 1
    assert both > 100


def test_the_same_for_arff():
    draw, both = random.Random(2), 0
    for _ in range(3000):
        text = mutated(draw.choice(ARFF), draw).decode("latin-1")
        try:
            header = arff._header(text)
            layout = arff._layout(header, None)
            rows, lines = arff._rows(text, header)
        except DataError:
            continue
        fast = arff._at_once(lines, layout)
        if fast is not None:
            careful = arff._one_by_one(rows, lines, layout)
            assert (fast[0], *fast[2:]) == (careful[0], *careful[2:])
            np.testing.assert_array_equal(fast[1], careful[1])
            both += 1
    assert both > 100


_MANY = 200_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ts", TS[1] + b":" * _MANY + b"x\n"),
        ("ts", TS[1] + b"1" + b" " * _MANY + b"1:1:x\n"),
        ("ts", TS[3] + b"(" * _MANY + b":u\n"),
        ("ts", TS[3] + b"(1,1):" * _MANY + b"u\n"),
        ("ts", b"@classLabel true " + b" ".join(b"%d" % n for n in range(_MANY)) + b"\n@data\n" + b"1:x\n" * 100),
        ("ts", b"@classLabel true " + b"a " * _MANY + b"\n@data\n1:a\n"),
        ("ts", b"@" + b"a" * _MANY),
        ("ts", b"\n" * _MANY),
        ("arff", ARFF[0] + b"'" * _MANY + b",a\n"),
        ("arff", ARFF[0] + b"'\\" * _MANY + b",a\n"),
        ("arff", ARFF[1] + b"'" + b"\\n" * _MANY + b"',a\n"),
        ("arff", ARFF[1] + b"'" + b"1" + b" " * _MANY + b"1\\n3,4',a\n"),
        (
            "arff",
            b"@attribute c {" + b",".join(b"%d" % n for n in range(_MANY)) + b"}\n@attribute t real\n@data\nx,1\n",
        ),
        ("arff", b"@attribute t real\n" * 5000 + b"@data\n" + b"1," * 5000),
    ],
)
def test_large_odd_files_take_little_time(tmp_path, name, content):
    start = time.process_time()
    check(tmp_path / f"large.{name}", content, name)
    assert time.process_time() - start < 5

"""Whatever the bytes are: a valid set or a DataError with the file in it."""

import gzip
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contiformer.data.errors import DataError
from contiformer.data.readers import ts
from contiformer.data.readers.ts import read_header, read_ts
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


def check(path, content):
    """The set, or None where it was refused."""
    path.write_bytes(content)
    file = None
    try:
        data = read_ts(path)
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


@given(content=st.binary(max_size=300), packed=st.booleans())
def test_arbitrary_bytes(tmp_path_factory, content, packed):
    path = tmp_path_factory.getbasetemp() / "fuzz.ts"
    check(path, gzip.compress(content) if packed else content)


@settings(max_examples=200)
@given(rest=st.text("0123456789.eE+-,:?()'\"{}\\nNaTZ @#%\n\t\r", max_size=80), start=st.integers(0, 5))
def test_arbitrary_cases_after_a_valid_header(tmp_path_factory, rest, start):
    header = TS[start].partition(b"@data\n")[0]
    check(tmp_path_factory.getbasetemp() / "fuzz.ts", header + b"@data\n" + rest.encode())


def test_damaged_files(tmp_path):
    path, draw = tmp_path / "fuzz.ts", random.Random(0)
    results = []
    for n in range(1500):
        content = mutated(draw.choice(TS), draw)
        if n % 5 == 0:
            content = gzip.compress(content, 1)
            content = mutated(content, draw) if n % 10 == 0 else content
        results.append(check(path, content) is None)
    # most damage hits the header of such short files, but neither outcome may be rare enough to go untested
    assert min(sum(results), len(results) - sum(results)) >= 100


def test_the_fast_way_takes_nothing_that_the_careful_way_refuses_or_reads_otherwise():
    draw, both = random.Random(1), 0
    for _ in range(3000):
        text = mutated(draw.choice(TS[:3]), draw).decode("latin-1")
        try:
            header, start = read_header(text)
            rows, lines = ts._cases(text, start, header.rows["data"])
            fast = ts._read_at_once(lines, header)
        except DataError:
            continue
        if fast is not None:
            assert fast == ts._read_line_by_line(rows, lines, header)
            both += 1
    assert both > 100


_MANY = 200_000


@pytest.mark.parametrize(
    "content",
    [
        TS[1] + b":" * _MANY + b"x\n",
        TS[1] + b"1" + b" " * _MANY + b"1:1:x\n",
        TS[3] + b"(" * _MANY + b":u\n",
        TS[3] + b"(1,1):" * _MANY + b"u\n",
        b"@classLabel true " + b" ".join(b"%d" % n for n in range(_MANY)) + b"\n@data\n" + b"1:x\n" * 100,
        b"@classLabel true " + b"a " * _MANY + b"\n@data\n1:a\n",
        b"@" + b"a" * _MANY,
        b"\n" * _MANY,
    ],
)
def test_large_odd_files_take_little_time(tmp_path, content):
    start = time.process_time()
    check(tmp_path / "large.ts", content)
    assert time.process_time() - start < 5

"""Arbitrary bytes give data or a DataError, never anything else."""

import gzip
import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contiformer.data import (
    DataError,
    EventSequence,
    EventSet,
    Series,
    SeriesSet,
    read_csv,
    read_events,
    read_parquet,
    scan_parquet,
    write_csv,
    write_events,
    write_parquet,
)

one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)

READERS = {
    "csv": lambda path: read_csv(path, id="id", time="time"),
    "our csv": read_csv,
    "parquet": lambda path: read_parquet(path, id="id", time="time"),
    "our parquet": read_parquet,
    "scan": lambda path: list(scan_parquet(path, id="id", time="time")),
    "events": read_events,
}
every_reader = pytest.mark.parametrize("name", READERS)


def attempt(read, path, data):
    path.write_bytes(data)
    with suppress(DataError):
        read(path)


def valid(name, folder):
    data = SeriesSet([Series.of([0, 1.5], [[1, 2], [3, float("nan")]], id=n, label="a", static=[n]) for n in range(4)])
    path = folder / "valid.parquet"
    if "csv" in name:
        write_csv(data, path)
    elif name == "events":
        write_events(EventSet([EventSequence.of([0.5, 1], [0, 1], id="a", features=[[1], [2]])] * 3), path)
    else:
        write_parquet(data, path)
    whole = path.read_bytes()
    return whole.split(b"\n", 1)[1] if name == "csv" else whole


@every_reader
@one_folder
@given(data=st.binary(max_size=400), packed=st.booleans())
def test_arbitrary_bytes(tmp_path, name, data, packed):
    attempt(READERS[name], tmp_path / "x.parquet", gzip.compress(data) if packed else data)


@every_reader
@one_folder
@given(text=st.text(alphabet='idtme,.:;"\n\r -+0123456789eEnaNTZ{}[]#', max_size=300))
def test_arbitrary_tables(tmp_path, name, text):
    attempt(READERS[name], tmp_path / "x.parquet", b"id,time,x\n" + text.encode())


@every_reader
def test_damaged_files(tmp_path, name):
    whole = valid(name, tmp_path)
    rng = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            change = rng.randrange(4)
            if change == 0:
                data[at] = rng.randrange(256)
            elif change == 1:
                del data[at : at + rng.randint(1, 30)]
            elif change == 2:
                data[at:at] = data[at : at + rng.randint(1, 30)]
            else:
                data = data[: at + 1]
            data = data or bytearray(b"x")
        attempt(READERS[name], tmp_path / "x.parquet", bytes(data))

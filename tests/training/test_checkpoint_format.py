"""The checkpoint file format: round trips, damage and full disks."""

import math
import os
import resource
import subprocess

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import files
from contiformer.training.checkpoints import DamagedError, read_checkpoint, write_checkpoint

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    return torch.randint(0, 2, shape).to(draw(st.sampled_from(DTYPES)))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | tensors()
keys = st.text(max_size=4) | st.integers()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@given(trees)
def test_write_and_read_round_trip(tmp_path_factory, given_tree):
    path = tmp_path_factory.mktemp("tree") / "a"
    write_checkpoint(path, given_tree)
    assert equal(read_checkpoint(path), given_tree)


def test_views_and_shared_tensors_are_written(tmp_path):
    x = torch.arange(6.0).reshape(2, 3)
    write_checkpoint(tmp_path / "a", {"whole": x, "turned": x.T, "again": x, "row": x[1]})
    found = read_checkpoint(tmp_path / "a")
    assert equal(found["turned"], x.T.contiguous())
    assert equal(found["again"], x)
    assert equal(found["row"], x[1])


@pytest.mark.parametrize("odd", [object(), {1.5: 0}, {True: 0}, {"a": {3, 4}}, b"bytes"])
def test_unsupported_types_are_refused_before_writing(tmp_path, odd):
    with pytest.raises(TypeError, match="checkpoint"):
        write_checkpoint(tmp_path / "a", odd)
    assert not list(tmp_path.iterdir())


def test_every_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "a"
    kept = {"x": torch.tensor([[1.0, -2.0], [3.0, 4.0]]), "n": 7, "words": ["a", "b"]}
    write_checkpoint(path, kept)
    data = path.read_bytes()
    for place in range(len(data)):
        for bit in (1, 32):
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            try:
                found = read_checkpoint(path)
            except DamagedError:
                continue
            # only spaces around the words of the header may change without a difference
            assert equal(found, kept), (place, bit)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_truncated_or_foreign_files_are_refused(tmp_path_factory, noise, length):
    path = tmp_path_factory.mktemp("tree") / "a"
    write_checkpoint(path, {"x": torch.ones(9)})
    whole = path.read_bytes()
    for data in (whole[: min(length, len(whole) - 1)], noise, whole + b"x"):
        path.write_bytes(data)
        with pytest.raises(DamagedError):
            read_checkpoint(path)


def test_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "a")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "a", {"old": 1})

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match=r"could not be written.*No space left"):
        write_checkpoint(tmp_path / "a", {"new": 1})
    assert read_checkpoint(tmp_path / "a") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_size_limit_keeps_the_old_file(tmp_path):
    write_checkpoint(tmp_path / "a", {"old": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="could not be written"):
            write_checkpoint(tmp_path / "a", {"new": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_checkpoint(tmp_path / "a") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    made = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], stderr=subprocess.DEVNULL
    )
    if not made:
        pytest.skip("may not mount a disk here")
    yield place
    subprocess.check_call(["umount", place])


def test_a_full_disk_keeps_the_old_file(small_disk):
    write_checkpoint(small_disk / "a", {"old": 1})
    with pytest.raises(OSError, match=r"could not be written.*[Nn]o space"):
        write_checkpoint(small_disk / "a", {"new": torch.zeros(100_000)})
    assert read_checkpoint(small_disk / "a") == {"old": 1}

"""Freed memory stays with the process where glibc is the allocator."""

import platform

import pytest

from contiformer.training.trainer import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_glibc_keeps_freed_memory():
    assert keep_freed_memory()


def test_other_allocators_are_left_alone(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_freed_memory.__wrapped__()

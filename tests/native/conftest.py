import pytest

from contiformer.native import dot_product, drive, flow, spectral
from contiformer.native import library as native


@pytest.fixture
def without_kernels(monkeypatch):
    """From its call on, PyTorch does everything."""

    def switch():
        monkeypatch.setattr(native, "kernels", lambda: None)

    return switch


@pytest.fixture
def calls(monkeypatch):
    """Names of the kernels of rivals that were called."""
    names = []

    def counted(name, *rest):
        names.append(name)
        return native.share_out(name, *rest)

    for module in (dot_product, drive, flow, spectral):
        monkeypatch.setattr(module, "share_out", counted)
    return names

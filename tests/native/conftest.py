import pytest

from contiformer.native import between, dot_product, drive, flow, pairs, spectral
from contiformer.native import library as native


@pytest.fixture
def without_kernels(monkeypatch):
    """From its call on, PyTorch does everything."""

    def switch():
        monkeypatch.setattr(native, "kernels", lambda: None)

    return switch


@pytest.fixture
def calls(monkeypatch):
    """Names of the kernels that were called, but for those of ContiFormer's own rule."""
    names = []

    def counted(name, *rest):
        names.append(name)
        return native.share_out(name, *rest)

    for module in (between, dot_product, drive, flow, pairs, spectral):
        monkeypatch.setattr(module, "share_out", counted)
    return names

"""Fixtures that count kernel calls and switch the kernels off."""

import pytest

from contiformer.native import dot_product, neural_cde, ode_rnn, spectral_mixture
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

    for module in (dot_product, neural_cde, ode_rnn, spectral_mixture):
        monkeypatch.setattr(module, "share_out", counted)
    return names

"""Fixtures that count kernel calls and switch the kernels off."""

from functools import partial

import pytest

from contiformer import use_kernels
from contiformer.native import library as native
from contiformer.native.rivals import dot_product, neural_cde, ode_rnn, spectral_mixture


@pytest.fixture(autouse=True)
def _kernels_on():
    """Whatever the environment says."""
    with use_kernels(True):
        yield


@pytest.fixture
def without_kernels():
    """From its call on, PyTorch does everything."""
    return partial(use_kernels, False)


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

import sys
from pathlib import Path

import pytest

from reproduction import experiments
from tests.reproduction import toy


@pytest.fixture
def only_toy(monkeypatch):
    """The toy is the only experiment there is."""
    monkeypatch.setitem(sys.modules, "reproduction.toy", toy)
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"toy": "toy:EXPERIMENT"})


@pytest.fixture
def toy_in_children(tmp_path_factory, monkeypatch):
    """The same in processes that are started."""
    folder = tmp_path_factory.mktemp("site")
    root = Path(__file__).parents[2]
    (folder / "sitecustomize.py").write_text("from tests.reproduction import toy\ntoy.install()\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{root}:{root / 'src'}")

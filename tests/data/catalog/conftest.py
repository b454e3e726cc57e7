import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_GIVEN = os.environ.get("CONTIFORMER_DATA")
SHARED = Path(_GIVEN) if _GIVEN else _ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is found but what a test puts there."""
    folder = tmp_path / "cache" / "contiformer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONTIFORMER_DATA", raising=False)
    return folder


@pytest.fixture
def shared(cache, monkeypatch):
    """The real data, where they are."""
    if not SHARED.is_dir():
        pytest.skip("no shared data here: set CONTIFORMER_DATA")
    monkeypatch.setenv("CONTIFORMER_DATA", str(SHARED))
    return SHARED

import os
from pathlib import Path

import pytest

_GIVEN = os.environ.get("CONTIFORMER_DATA")
SHARED = Path(_GIVEN) if _GIVEN else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def shared(monkeypatch):
    """The folder of real data sets, of which the catalogue knows meanwhile."""
    if not SHARED.is_dir():
        pytest.skip("no shared data here: set CONTIFORMER_DATA")
    monkeypatch.setenv("CONTIFORMER_DATA", str(SHARED))
    return SHARED

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# the suite runs in several processes, and its tensors are small
torch.set_num_threads(1)

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _same_draws_in_any_order_of_tests():
    torch.manual_seed(0)


_GIVEN = os.environ.get("CONTIFORMER_DATA")
SHARED = Path(_GIVEN) if _GIVEN else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def shared(monkeypatch):
    """The folder of real data sets, of which the catalogue knows meanwhile."""
    if not SHARED.is_dir():
        pytest.skip("no shared data here: set CONTIFORMER_DATA")
    monkeypatch.setenv("CONTIFORMER_DATA", str(SHARED))
    return SHARED


def pytest_collection_modifyitems(items):
    # not in pyproject.toml: there it would import the package before its coverage is measured
    warning = "contiformer.paths.trajectories.ResolutionWarning"
    for item in items:
        own_filters = [text for marker in item.iter_markers("filterwarnings") for text in marker.args]
        if not any("Warning" in text for text in own_filters):
            item.add_marker(pytest.mark.filterwarnings(f"error::{warning}"))

"""Set-up of all tests: array annotations checked in every call, docstring examples run as a user would run them."""

import pytest
import torch
from hypothesis import settings

from tests import array_types

array_types.install("contiformer")

# the suite runs in several processes, and its tensors are small
torch.set_num_threads(1)

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _same_draws_in_any_order_of_tests():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _array_checks(request):
    array_types.start_test(0 if request.node.get_closest_marker("no_array_checks") else array_types.CALLS)


@pytest.fixture(autouse=True)
def _docstring_examples_in_an_empty_folder(request):
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


def pytest_itemcollected(item):
    # an example shows every import that it needs: none of the module's own names are there
    if isinstance(item, pytest.DoctestItem):
        item.dtest.globs = {"__name__": "__main__"}


def pytest_collection_modifyitems(items):
    # not in pyproject.toml: there it would import the package before its coverage is measured
    warning = "contiformer.paths.trajectories.ResolutionWarning"
    for item in items:
        own_filters = [text for marker in item.iter_markers("filterwarnings") for text in marker.args]
        if not any("Warning" in text for text in own_filters):
            item.add_marker(pytest.mark.filterwarnings(f"error::{warning}"))

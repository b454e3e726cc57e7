"""Capabilities of a backbone are checked against the data before training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from contiformer.backbones import BACKBONES, Capabilities, check_capabilities, make_backbone
from contiformer.cli.main import app
from contiformer.data import DataError, Series, SeriesSet

REGULAR = SeriesSet([Series.of(np.arange(5.0), np.ones((5, 2)), id="a")])
IRREGULAR = SeriesSet([Series.of([0.0, 1.0, 3.0], np.ones((3, 2)), id="a")])
GAPS = SeriesSet([Series.of([0.0, 1.0], [[1.0, np.nan], [1.0, 2.0]], id="b")])


def test_everything_is_allowed_to_one_that_can_do_everything():
    for data in (REGULAR, IRREGULAR, GAPS):
        check_capabilities("x", Capabilities(), data)


def test_irregular_times_need_a_backbone_that_takes_them():
    check_capabilities("grid", Capabilities(irregular=False), REGULAR)
    with pytest.raises(DataError, match="series 'a' has irregular times, and the backbone 'grid' needs a regular grid"):
        check_capabilities("grid", Capabilities(irregular=False), IRREGULAR)


def test_missing_values_need_a_backbone_that_takes_them():
    check_capabilities("whole", Capabilities(missing=False), IRREGULAR)
    with pytest.raises(DataError, match="series 'b' has missing values, and the backbone 'whole'"):
        check_capabilities("whole", Capabilities(missing=False), GAPS)


def test_data_errors_are_value_errors():
    assert issubclass(DataError, ValueError)


def test_unknown_names_and_options_are_told():
    with pytest.raises(ValueError, match="did you mean 'contiformer'"):
        make_backbone("contifromer", 3)
    with pytest.raises(ValueError, match="does not fit the backbone 'contiformer'"):
        make_backbone("contiformer", 3, width=8)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_knows_the_common_options(name):
    backbone = make_backbone(name, 3, d_model=8, n_layers=2, dropout=0.0)
    assert backbone.d_model == 8
    assert isinstance(backbone.capabilities, Capabilities)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_cites_its_paper(name):
    assert len(BACKBONES[name].citation) > 20


def test_the_command_line_lists_them_all():
    result = CliRunner().invoke(app, ["backbones", "--json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(BACKBONES)
    assert rows["contiformer"]["causal"] == "as an option"
    assert rows["gru_d"]["causal"] == "yes"
    assert not rows["dlinear"]["irregular"]
    assert all(row["parameters"] > 0 for row in rows.values())

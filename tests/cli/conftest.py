"""Small tables, and runs that were trained on them once."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from contiformer.cli.main import app

#: A model that trains in a moment.
TINY = ("--set", "d_model=8", "--set", "max_epochs=2", "--set", "min_steps=0", "--set", "verbose=0")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def _table(path, series=24, seed=0):
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(series):
        sign = 1 if n % 2 else -1
        for t in np.sort(draw.uniform(0, 10, 8)):
            x = sign * np.sin(t) + 0.1 * draw.normal()
            rows.append(
                {"who": f"p{n}", "t": round(float(t), 3), "x": x, "twice": 2 * x, "kind": "up" if n % 2 else "down"}
            )
    pl.DataFrame(rows).write_csv(path)
    return path


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return _table(tmp_path_factory.mktemp("tables") / "waves.csv")


@pytest.fixture(scope="session")
def classified(table, tmp_path_factory):
    """A finished classification with a test part."""
    folder = tmp_path_factory.mktemp("runs") / "classified"
    columns = ("--id", "who", "--time", "t", "--values", "x", "--label", "kind")
    words = ("train", "classification", "--data", table, *columns, "--test", "0.25", *TINY, "--output", folder)
    result = run(*words)
    assert result.exit_code == 0, result.output
    return folder, words, result


@pytest.fixture(scope="session")
def interpolated(table, tmp_path_factory):
    """A finished interpolation without one."""
    folder = tmp_path_factory.mktemp("runs") / "interpolated"
    columns = ("--id", "who", "--time", "t", "--values", "x", "--label", "kind")
    result = run("train", "interpolation", "--data", table, *columns, *TINY, "--output", folder)
    assert result.exit_code == 0, result.output
    return folder

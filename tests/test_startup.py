"""Start-up: modules that importing the package must not load."""

import subprocess
import sys

import pytest

#: Loaded where they are used.
HEAVY = [
    "lightning",
    "matplotlib",
    "pandas",
    "polars",
    "rich",
    "scipy",
    "sklearn",
    "tensorboard",
    "torch._dynamo",
    "torch._inductor",
    "torchmetrics",
    "typer",
]


def loaded_by(statement, after="pass"):
    """Names of the modules that a statement loads in a new process, after another statement."""
    program = f"import sys\n{after}\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["Classifier", "Regressor", "Interpolator", "Forecaster", "EventPredictor"])
def test_estimators_load_no_heavy_modules(name):
    loaded = loaded_by(f"from contiformer import {name}", after="import torch")
    assert not loaded & set(HEAVY)


def test_the_package_itself_loads_no_torch():
    assert not loaded_by("import contiformer") & {"torch", "numpy", *HEAVY}

"""An experiment whose cells take no time, and rows that nobody had to run."""

import os
import sys
import time
from dataclasses import replace
from math import isfinite
from pathlib import Path
from types import SimpleNamespace

from reproduction import experiments
from reproduction.experiments import Cell, Experiment, Metric, Outcome

ACCURACY = Metric("accuracy", "accuracy", "max")
ERROR = Metric("error", "error", "min", ".3f")
DATA, SETTINGS, MODELS, SEEDS = (
    ("north", "south", "gone"),
    ("drop30", "drop50"),
    ("ours", "rival", "broken, rival"),
    (0, 1),
)
MACHINE = {"cpu": "abacus", "threads": 1, "torch": "2", "commit": "abc", "date": "2026-01-02T03:04:05+00:00"}


def grid(protocol):
    return [
        Cell("toy", data, setting, model, seed, protocol)
        for seed in SEEDS
        for data in DATA
        for setting in SETTINGS
        for model in MODELS
    ]


def run(cell, budget, verbose):
    """Write down that it was run; one model always fails."""
    if log := os.environ.get("TOY_LOG"):
        with Path(log).open("a") as file:
            file.write(f"{cell}\n")
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    if cell.model.startswith("broken"):
        raise RuntimeError("no luck")
    return Outcome({"accuracy": 0.5 + 0.1 * cell.seed + 0.2 * (cell.model == "ours")}, {"width": 8})


EXPERIMENT = Experiment(
    name="toy",
    title="A toy <of> its kind",
    metrics=(ACCURACY,),
    grid=grid,
    run=run,
    absent=lambda cell: "no data: gone is not here" if cell.data == "gone" else None,
    ours="ours",
    protocols=("honest", "paper"),
)
#: Without the model that fails.
SOUND = replace(EXPERIMENT, grid=lambda protocol: [cell for cell in grid(protocol) if "broken" not in cell.model])


def row(cell, **metrics):
    return {
        "table": cell.table,
        "data": cell.data,
        "setting": cell.setting,
        "model": cell.model,
        "seed": cell.seed,
        "protocol": cell.protocol,
        "version": 1,
        "metrics": metrics,
        "details": {},
        "budget": "full",
        "configuration": {},
        "seconds": 60.0,
        "machine": MACHINE,
    }


def write(store, cell, experiment):
    """Run a cell of an experiment by its quick budget, and store it as the command does."""
    outcome = experiment.run(cell, "quick", 0)
    assert set(outcome.metrics) == {metric.key for metric in experiment.metrics}
    assert all(map(isfinite, outcome.metrics.values()))
    one = row(cell, **outcome.metrics) | {"version": experiment.version, "budget": "quick"}
    store.write(cell, one | {"configuration": outcome.configuration, "details": outcome.details})


def install():
    """Make it the only experiment of this process, which need not import what it takes to describe the machine."""
    sys.modules["benchmarks.machine"] = SimpleNamespace(machine_facts=lambda: MACHINE)
    sys.modules["reproduction.toy"] = sys.modules[__name__]
    experiments.EXPERIMENTS.clear()
    experiments.EXPERIMENTS["toy"] = "toy:EXPERIMENT"

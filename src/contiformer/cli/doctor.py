"""``contiformer doctor``: checks of the installation.

torch, and all that needs it, is imported by the checks: an installation in which that fails can be examined too.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from contiformer import __version__
from contiformer.cli.commands import FAILED
from contiformer.data.catalog import DATASETS, ENVIRONMENT_VARIABLE, data_folders, presence

NEEDED: tuple[str, ...] = ("torch", "lightning", "numpy", "polars", "scikit-learn", "safetensors", "PyYAML", "typer")
NEEDED += ("rich", "jaxtyping", "pooch", "filelock")
#: Optional packages: what they are for, and the extra that brings them.
EXTRAS = {
    "matplotlib": ("pictures: plot and demo", "pip install 'contiformer[plot]'"),
    "tensorboard": ("logs for TensorBoard", "pip install 'contiformer[logs]'"),
    "huggingface_hub": ("models on the Hugging Face hub", "pip install 'contiformer[hub]'"),
    "fastapi": ("predictions over HTTP: serve", "pip install 'contiformer[serve]'"),
    "pandas": ("DataFrames of pandas", "pip install pandas"),
    "aeon": ("comparison in `python -m benchmarks data`", "pip install 'contiformer[bench]'"),
}
State = Literal["ok", "note", "broken"]
_COLOUR = {"ok": "green", "note": "yellow", "broken": "red"}


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    state: State
    text: str


def doctor() -> None:
    """Print all findings."""
    console = Console(highlight=False)
    broken = 0
    for finding in examine():
        broken += finding.state == "broken"
        what, state = (f"{finding.what:<16} ", "bold"), (f"{finding.state:<7}", _COLOUR[finding.state])
        console.print(Text.assemble(what, state, finding.text), soft_wrap=True)
    if broken:
        console.print(f"{broken} of these must be repaired before contiformer can be used", style="red")
        raise typer.Exit(FAILED)
    console.print("everything that is needed works", style="green")


def examine() -> Iterator[Finding]:
    """All findings, one after the other; none of the checks can stop the others."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (_versions, _machine, _devices, _data, _extras, _self_test)
    for check in checks:
        try:
            yield from check()
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            yield Finding(check.__name__.strip("_").replace("_", "-"), "broken", text)


def _versions() -> Iterator[Finding]:
    yield Finding("contiformer", "ok", __version__)
    right = sys.version_info >= (3, 11)
    needed = "" if right else ", 3.11 is needed"
    yield Finding("python", "ok" if right else "broken", platform.python_version() + needed)
    for package in NEEDED:
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding(package, "broken", f"missing: pip install {package}")


def _machine() -> Iterator[Finding]:
    import torch  # noqa: PLC0415

    from contiformer.machine import available_mb, busy, compiled_kernels, cpu_name, load  # noqa: PLC0415

    at_work = f"; the machine is busy (load {load()}), so training takes longer" if busy() else ""
    text = f"{torch.get_num_threads()} of {os.cpu_count()} processors, {cpu_name()}{at_work}"
    yield Finding("threads", "note" if at_work else "ok", text)
    free = available_mb()
    if free is None:
        yield Finding("memory", "note", "the system does not tell how much is free")
    else:
        yield Finding("memory", "ok" if free > 500 else "note", f"{free / 1024:.1f} GB free")
    compiled = compiled_kernels()
    slower = "not compiled: PyTorch does the same work more slowly; install with a C compiler"
    yield Finding("kernels", "ok" if compiled else "note", "compiled kernels are used" if compiled else slower)


def _devices() -> Iterator[Finding]:
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        yield Finding("devices", "ok", "cpu (no CUDA device)")
        return
    for n in range(torch.cuda.device_count()):
        yield Finding(f"cuda:{n}", "ok", torch.cuda.get_device_name(n))


def _data() -> Iterator[Finding]:
    places = ", ".join(f"{root}{'' if root.is_dir() else ' (not there)'}" for root in data_folders())
    yield Finding("data folder", "ok" if any(root.is_dir() for root in data_folders()) else "note", places)
    here: dict[str, list[str]] = {}
    for info in DATASETS.values():
        here.setdefault(presence(info), []).append(info.name)
    found = here.get("yes", [])
    text = f"{len(found)} of {len(DATASETS)} found: {', '.join(found)}" if found else "none found"
    if here.get("part"):
        text += f"; in part: {', '.join(here['part'])}"
    if not found:
        text += f"; get one with `contiformer datasets download BasicMotions`, or set {ENVIRONMENT_VARIABLE}"
    yield Finding("data sets", "ok" if found else "note", text)


def _extras() -> Iterator[Finding]:
    for package, (purpose, command) in EXTRAS.items():
        if find_spec(package) is None:
            yield Finding(package, "note", f"absent: {command}  ({purpose})")
        else:
            yield Finding(package, "ok", f"{version(package)}  ({purpose})")


def _self_test() -> Iterator[Finding]:
    """Fit a tiny model, save it, load it, and get the same answers."""
    import numpy as np  # noqa: PLC0415

    from contiformer import Classifier, TrainingOptions  # noqa: PLC0415

    began = time.perf_counter()
    draw = np.random.default_rng(0)
    X: list[Any] = [(np.sort(draw.random(6)), draw.normal(n % 2, 0.1, (6, 1))) for n in range(16)]
    y = [n % 2 for n in range(16)]
    model = Classifier(d_model=8, training=TrainingOptions(max_epochs=6, validation=0.25, verbose=0)).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        again = Classifier.load(folder)
    if np.allclose(model.predict_proba(X), again.predict_proba(X)):
        seconds = time.perf_counter() - began
        yield Finding("self-test", "ok", f"a small model was trained, saved and loaded in {seconds:.1f} s")
    else:
        yield Finding("self-test", "broken", "a saved model gives other answers")

"""Trainings on folds, kept in a folder: what was stopped goes on at the fold and epoch it was at."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from contiformer.data.conversion import plain
from contiformer.data.errors import DataError
from contiformer.data.files import read_text, write_text
from contiformer.estimators.learner import Learner

Cell = dict[str, Any]


def new_model(model: str | Learner, kind: type[Learner], run_dir: Path | None = None) -> Any:
    """A new estimator by the name of its backbone, or with the parameters of another one."""
    if isinstance(model, str):
        return kind(backbone=model, run_dir=run_dir)
    if not isinstance(model, kind):
        raise ValueError(f"members must be names of backbones or {kind.__name__}s, got {model!r}")
    parameters = {field.name: getattr(model, field.name) for field in fields(model)}
    return type(model)(**{**parameters, "run_dir": run_dir})


def names_of_models(models: Sequence[str | Learner]) -> list[str]:
    """A name for each model."""
    return [model if isinstance(model, str) else repr(model) for model in models]


class Cells:
    """Outcomes of trainings as JSON files of a folder; without one nothing is kept.

    Args:
        folder: may hold the cells of an earlier start.
        about: what decides the folds; other data or folds are refused.
        data: the series or sequences that are divided.
    """

    def __init__(self, folder: Path | None, about: Sequence[Hashable], data: Any) -> None:
        self.folder = None if folder is None else folder / "cells"
        if self.folder is None or folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path, fingerprint = self.folder / "fingerprint.json", _fingerprint(data, about)
        if not path.is_file():
            write_text(path, json.dumps({"fingerprint": fingerprint}))
        elif json.loads(read_text(path)).get("fingerprint") != fingerprint:
            problem = "trainings on other data, or with other folds, were begun here"
            raise DataError(problem, file=folder, remedy="give another folder")

    def read(self, name: str, fold: int) -> Cell | None:
        """The outcome of an earlier start."""
        place = self._place(name, fold)
        path = None if place is None else place.with_suffix(".json")
        return json.loads(read_text(path)) if path is not None and path.is_file() else None

    def run(self, name: str, fold: int, train: Callable[[Path | None], Cell]) -> Cell:
        """The outcome of an earlier start, or of ``train``, which is given a folder for checkpoints."""
        found, place = self.read(name, fold), self._place(name, fold)
        if found is not None:
            return found
        # through JSON in any case: a resumed start has the same numbers
        cell: Cell = json.loads(json.dumps({"model": name, **train(place)}, default=plain))
        if place is not None:
            write_text(place.with_suffix(".json"), json.dumps(cell))
            shutil.rmtree(place, ignore_errors=True)
        return cell

    def _place(self, name: str, fold: int) -> Path | None:
        key = hashlib.sha256(name.encode()).hexdigest()[:12]
        return None if self.folder is None else self.folder / f"{key}-fold{fold}"


def _fingerprint(data: Any, about: Sequence[Hashable]) -> str:
    found = hashlib.sha256(json.dumps([*about, data.ids, data.labels], default=str).encode())
    for one in data:
        found.update(one.times.tobytes())
        found.update(np.ascontiguousarray(one.values if hasattr(one, "values") else one.types).tobytes())
    return found.hexdigest()

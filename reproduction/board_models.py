"""Models of the boards, by name: options, fitting, and the parts of the data that quick cells take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.accuracy import MORTALITY_OPTIONS
from contiformer import Blend, Classifier
from contiformer.backbones import BACKBONES
from contiformer.data import SeriesSet
from reproduction.experiments import STATIC_TWIN, Budget, Cell, configuration, model_options, not_here

#: Options of variants, behind the colon of a model's name.
_VARIANTS: dict[str, dict[str, Any]] = {"mortality": MORTALITY_OPTIONS, "rocket": {"beside": "rocket"}}
#: Baselines of whole series, and the blend.
BASELINES = ("boosting", "rocket", "blend")
#: Members of the blend.
BLENDED = ("contiformer", "boosting", "rocket")
RIVALS = ("transformer", "mtan", "s5", "gru_d")
#: Random convolutions beside the network.
MIXED = "contiformer:rocket"
SERIES_MODELS = ("contiformer", MIXED, STATIC_TWIN, *RIVALS, *BASELINES)
QUICK: dict[str, Any] = {"min_steps": 20, "epochs": 1, "d_model": 8}
_FEW = 120


def options_of(model: str, budget: Budget) -> dict[str, Any]:
    """Parameters of an estimator: the backbone, those of a variant, and short training for quick cells."""
    options, words = model_options(model)
    variants = {name: value for word in words for name, value in _VARIANTS[word].items()}
    return {**options, **variants, **(QUICK if budget == "quick" else {})}


def unknown_model(cell: Cell) -> str | None:
    """Why a model cannot be run: this version of the library does not have it."""
    name = cell.model.partition(":")[0]
    known = name in BACKBONES or name in BASELINES
    return None if known else f"no model: this version has no {name}"


def absent(cell: Cell, data: Callable[[str], str] = lambda name: name) -> str | None:
    """Why a cell cannot be run here: its model or its data are not there."""
    return unknown_model(cell) or not_here(replace(cell, data=data(cell.data)))


def few(data: Any, budget: Budget) -> Any:
    """A small part for quick cells, evenly taken."""
    if budget == "full" or len(data) <= _FEW:
        return data
    return data.select(np.linspace(0, len(data) - 1, _FEW).round().astype(int))


def fit_classifier(model: str, train: SeriesSet, val: SeriesSet | None, seed: int, budget: Budget, verbose: int) -> Any:
    """A fitted classifier by name; the blend finds its weights by folds."""
    if model == "blend":
        members = [Classifier.from_options(**options_of(name, budget), seed=seed, verbose=verbose) for name in BLENDED]
        return Blend(members, seed=seed).fit(train)
    made = Classifier.from_options(**options_of(model, budget), seed=seed, verbose=verbose)
    return (made.fit(train) if val is None else made.fit(train, validation_data=val)).require_complete()


def configuration_of(model: Any) -> dict[str, Any]:
    """The configuration of a fitted model, for the record."""
    try:
        return configuration(model)
    except (AttributeError, KeyError):  # a blend has members instead
        return {"model": repr(model)}

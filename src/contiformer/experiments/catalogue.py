"""All experiments by name; each is imported when it is used."""

from __future__ import annotations

from importlib import import_module

from contiformer.data.errors import did_you_mean
from contiformer.experiments.experiment import Experiment

#: In the order of the report.
MODULES: dict[str, str] = {
    "spirals": "spirals:EXPERIMENT",
    "uea": "uea:EXPERIMENT",
    "events": "events:EXPERIMENT",
    "events-significance": "events:SIGNIFICANCE",
    "forecasting": "forecasting:EXPERIMENT",
    "pendulum": "pendulum:EXPERIMENT",
    "efficiency": "efficiency:EXPERIMENT",
    "attention": "ablations:ATTENTION",
    "quadrature": "ablations:QUADRATURE",
    "step-size": "ablations:STEP_SIZE",
    "step-size-short": "step_short:EXPERIMENT",
    "step-size-scores": "step_scores:EXPERIMENT",
    "field": "ablations:FIELD",
    "dropout": "ablations:DROPOUT",
    "time-normalisation": "ablations:TIME_NORMALISATION",
    "theorem": "theorem:EXPERIMENT",
    "fig-spirals": "fig_spirals:EXPERIMENT",
    "fig-attention": "fig_attention:EXPERIMENT",
    "fig-dropout": "fig_spirals:DROPOUT_EXPERIMENT",
    "fig-cost": "fig_cost:EXPERIMENT",
}


def get(name: str) -> Experiment:
    """An experiment.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in MODULES:
        raise ValueError(f"there is no experiment {name!r}; {did_you_mean(name, MODULES)}")
    module, attribute = MODULES[name].split(":")
    found = getattr(import_module(f"contiformer.experiments.{module}"), attribute)
    assert isinstance(found, Experiment)
    return found

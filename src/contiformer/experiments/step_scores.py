"""What the step size of the paper's algorithm changes: one trained model, its likelihood by every step.

One training serves all steps: what the step does to a model that is trained already needs no other (``step-size`` has
those).
"""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter
from typing import Any

from contiformer.data.events import EventSet
from contiformer.estimators import EventPredictor
from contiformer.experiments import ablations, events
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Metrics, Outcome
from contiformer.experiments.presence import not_here
from contiformer.experiments.recipe import configuration
from contiformer.nn import ContinuousAttention

STEPS = {name: options["backbone_options"]["step_size"] for name, options in ablations.STEPS.items()}
FOLD = 1
#: What is scored: so many sequences of the test part, of each the first so many events.
SEQUENCES, EVENTS = 50, 50
QUICK_SEQUENCES, QUICK_EVENTS = 5, 20


def grid(protocol: Protocol) -> list[Cell]:
    """Set by set: in one process one training serves all steps of a set; with several, each trains its own."""
    return [
        Cell("step-size-scores", data, f"fold{FOLD}", step, 0, protocol) for data in ablations.DATA for step in STEPS
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Score the sequences with exact trajectories and with one ODE for each pair of events."""
    model, some = _trained(cell.data, cell.seed, budget, verbose)
    exact = _scored(model, some, method="spectral")
    begin = perf_counter()
    stepped = _scored(model, some, method="pairwise", step_size=STEPS[cell.model])
    seconds = round(perf_counter() - begin, 2)
    off = abs(stepped["log_likelihood"] - exact["log_likelihood"])
    return Outcome({"off": off, **stepped}, configuration(model), {"exact": exact, "seconds_of_scoring": seconds})


def _scored(model: EventPredictor, data: EventSet, **how: Any) -> Metrics:
    """By the given algorithm."""
    for part in model.tasks_[0].modules():
        if isinstance(part, ContinuousAttention):
            for name, value in how.items():
                setattr(part, name, value)
    return model.evaluate(data)


@lru_cache(maxsize=1)
def _trained(data: str, seed: int, budget: Budget, verbose: int) -> tuple[EventPredictor, EventSet]:
    """A model with exact trajectories and the paper's two-point rule, and what it is asked about."""
    learning, dev, test, _ = events.parts(data, FOLD)
    options = ablations.options_of("quadrature", "linear")
    short = events.QUICK if budget == "quick" else {}
    model = EventPredictor(**options, **short, seed=seed, verbose=verbose)
    model.fit(learning, validation_data=dev).whole()
    sequences, first = (QUICK_SEQUENCES, QUICK_EVENTS) if budget == "quick" else (SEQUENCES, EVENTS)
    return model, events.first_events(test[:sequences], first)


EXPERIMENT = Experiment(
    name="step-size-scores",
    title="Ablation: one trained model, scored by the paper's algorithm at its step sizes",
    metrics=(Metric("off", "log-likelihood's difference from exact trajectories", "min", ".1e"),),
    grid=grid,
    run=run,
    absent=not_here,
    repeats=True,
    ours="",
    note=(
        "Not in the paper, which trains anew for every step. ContiFormer with THP's intensity and the two-point "
        f"rule is trained with exact trajectories; up to {SEQUENCES} sequences of the test part, of each the first "
        f"{EVENTS} events, are scored. A difference of one in the seventh digit is rounding."
    ),
)

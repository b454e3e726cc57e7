"""The step size of the paper's algorithm where the ablation on whole sequences does not reach.

``step-size-short``: trainings on the first events of each sequence. On BookOrder's 500 events at a step of 0.005 one
training is more than 10¹² evaluations of a field; the first 30 events have less than a hundredth of the pairs.

``step-size-scores``: one trained model, its likelihood by every step. The effect of the step on a trained model needs
no other training.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any

from contiformer import EventPredictor
from contiformer.data import EventSet
from contiformer.nn import ContinuousAttention
from reproduction import ablations, events
from reproduction.experiments import (
    Budget,
    Cell,
    Experiment,
    Metric,
    Metrics,
    Outcome,
    Protocol,
    configuration,
    not_here,
)

#: Set and number of events of ``step-size-short``.
SHORT_DATA, SHORT_EVENTS, QUICK_SHORT_EVENTS = events.SHORT_DATA, events.SHORT_EVENTS, 10
STEPS = {name: options["backbone_options"]["step_size"] for name, options in ablations.STEPS.items()}
FOLD = 1
#: ``step-size-scores`` scores so many sequences of the test part, of each the first so many events.
SEQUENCES, EVENTS = 50, 50
QUICK_SEQUENCES, QUICK_EVENTS = 5, 20


def _short_grid(protocol: Protocol) -> list[Cell]:
    """Large steps, which are cheap, first."""
    return [
        Cell("step-size-short", SHORT_DATA, f"fold{fold}", variant, seed, protocol)
        for fold, seed in events.repeats(SHORT_DATA)
        for variant in ablations.VARIANTS["step-size"]
    ]


def _run_short(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Train as on whole sequences, with the first events only in all three parts."""
    first = QUICK_SHORT_EVENTS if budget == "quick" else SHORT_EVENTS
    return events.train(cell, ablations.options_of("step-size", cell.model), budget, verbose, first=first)


SHORT = replace(
    ablations.STEP_SIZE,
    name="step-size-short",
    title=f"{ablations.STEP_SIZE.title}, on the first {SHORT_EVENTS} events of each sequence",
    grid=_short_grid,
    run=_run_short,
    twins=lambda cell: (),
    note=(
        f"Not in the paper, which trains on whole sequences. Of every sequence in train, dev and test part the first "
        f"{SHORT_EVENTS} events: of all 500 the smallest steps would take days each. {ablations.STEP_SIZE.note}"
    ),
)


def _scores_grid(protocol: Protocol) -> list[Cell]:
    """Set by set: in one process one training serves all steps of a set; with several, each trains its own."""
    return [
        Cell("step-size-scores", data, f"fold{FOLD}", step, 0, protocol) for data in ablations.DATA for step in STEPS
    ]


def run_scores(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Score the sequences with exact trajectories and with one ODE for each pair of events."""
    model, some = _trained(cell.data, cell.seed, budget, verbose)
    exact = _scored(model, some, method="spectral")
    begin = perf_counter()
    stepped = _scored(model, some, method="pairwise", step_size=STEPS[cell.model])
    seconds = round(perf_counter() - begin, 2)
    off = abs(stepped["log_likelihood"] - exact["log_likelihood"])
    return Outcome({"off": off, **stepped}, configuration(model), {"exact": exact, "seconds_of_scoring": seconds})


def _scored(model: EventPredictor, data: EventSet, **how: Any) -> Metrics:
    """Metrics with attention computed by the given algorithm."""
    for part in model.tasks_[0].modules():
        if isinstance(part, ContinuousAttention):
            for name, value in how.items():
                setattr(part, name, value)
    return model.evaluate(data)


@lru_cache(maxsize=1)
def _trained(data: str, seed: int, budget: Budget, verbose: int) -> tuple[EventPredictor, EventSet]:
    """A model trained with exact trajectories and the paper's two-point rule, and the sequences to score."""
    learning, dev, test, _ = events.parts(data, FOLD)
    options = ablations.options_of("quadrature", "linear")
    short = events.QUICK if budget == "quick" else {}
    model = EventPredictor.from_options(**options, **short, seed=seed, verbose=verbose)
    model.fit(learning, validation_data=dev).require_complete()
    sequences, first = (QUICK_SEQUENCES, QUICK_EVENTS) if budget == "quick" else (SEQUENCES, EVENTS)
    return model, events.first_events(test[:sequences], first)


SCORES = Experiment(
    name="step-size-scores",
    title="Ablation: one trained model, scored by the paper's algorithm at its step sizes",
    metrics=(Metric("off", "log-likelihood's difference from exact trajectories", "min", ".1e"),),
    grid=_scores_grid,
    run=run_scores,
    version=events.VERSION,
    absent=not_here,
    repeats=True,
    ours="",
    note=(
        "Not in the paper, which trains anew for every step. ContiFormer with THP's intensity and the two-point "
        f"rule is trained with exact trajectories; up to {SEQUENCES} sequences of the test part, of each the first "
        f"{EVENTS} events, are scored. A difference of one in the seventh digit is rounding."
    ),
)

"""The step size of the paper's algorithm, trained where whole sequences are out of its reach: on their first events.

One training on BookOrder's sequences of 500 events at a step of 0.005 is more than 10¹² evaluations of a field. The
first 30 events have less than a hundredth of the pairs.
"""

from __future__ import annotations

from dataclasses import replace

from contiformer.experiments import ablations, events
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Outcome

DATA = "BookOrder"
EVENTS = 30
QUICK_EVENTS = 10


def grid(protocol: Protocol) -> list[Cell]:
    """Large steps, which are cheap, first."""
    return [
        Cell("step-size-short", DATA, f"fold{fold}", variant, seed, protocol)
        for fold, seed in events.repeats(DATA)
        for variant in ablations.VARIANTS["step-size"]
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """As in the table of whole sequences, but for what is kept of them in all three parts."""
    first = QUICK_EVENTS if budget == "quick" else EVENTS
    return events.train(cell, ablations.options_of("step-size", cell.model), budget, verbose, first=first)


EXPERIMENT = replace(
    ablations.STEP_SIZE,
    name="step-size-short",
    title=f"{ablations.STEP_SIZE.title}, on the first {EVENTS} events of each sequence",
    grid=grid,
    run=run,
    twins=lambda cell: (),
    note=(
        f"Not in the paper, which trains on whole sequences. Of every sequence in train, dev and test part the first "
        f"{EVENTS} events: of all 500 the smallest steps would take days each. {ablations.STEP_SIZE.note}"
    ),
)

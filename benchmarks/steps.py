"""What the step size of the paper's algorithm changes: one trained model, its likelihood by every step.

Trainings at small steps take hours (``contiformer reproduce step-size``). Here a model is trained once, with exact
trajectories and the paper's two-point rule, and sequences it was validated on are scored again by the paper's
algorithm, one ODE for each pair of events. Run as ``python benchmarks/steps.py [SET ...]`` (twenty minutes on one core
for all four); each step prints a line of JSON.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from contiformer import EventPredictor
from contiformer.data.catalog.events import load_events
from contiformer.data.events import without_features
from contiformer.experiments import ablations
from contiformer.nn import ContinuousAttention

STEPS = (0.5, 0.1, 0.05, 0.01, 0.005)
#: What is scored: so many sequences, of each the first so many events.
SEQUENCES, EVENTS = 50, 100


def scored(name: str) -> Iterator[dict[str, Any]]:
    """Log-likelihood per event and seconds, by exact trajectories and by each step."""
    learning, dev = (load_events(name, fold=1, split=part).map(without_features) for part in ("train", "dev"))
    model = EventPredictor(intensity="thp", backbone_options={"rule": "linear"}, seed=0, verbose=0)
    model.fit(learning, validation_data=dev)
    some = dev[:SEQUENCES].map(lambda one: one.events(slice(EVENTS)))
    layers = [part for part in model.tasks_[0].modules() if isinstance(part, ContinuousAttention)]
    for step in (None, *STEPS):
        for layer in layers:
            layer.method = "spectral" if step is None else "pairwise"
            layer.step_size = step or layer.step_size
        begin = time.perf_counter()
        likelihood = model.evaluate(some)["log_likelihood"]
        seconds = round(time.perf_counter() - begin, 2)
        told = {"data": name, "events": int(some.lengths.sum()), "step": step}
        yield {**told, "log_likelihood": likelihood, "seconds": seconds}


if __name__ == "__main__":
    for name in sys.argv[1:] or ablations.DATA:
        for row in scored(name):
            print(json.dumps(row), flush=True)

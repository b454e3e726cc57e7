"""What a model said before each event, beside what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

from contiformer.tasks.events.likelihood import intervals
from contiformer.tasks.events.next_event import expect

if TYPE_CHECKING:
    from contiformer.estimators.event_predictor import EventPredictor


@dataclass(frozen=True)
class Review:
    """Every event but the first of each sequence, one after the other.

    Attributes:
        wait, expected: the time since the event before, and what was expected of it, in the data's unit.
        kind, said: the type, and the likeliest one at the expected time.
    """

    wait: Float64[np.ndarray, " events"]
    expected: Float64[np.ndarray, " events"]
    kind: Int64[np.ndarray, " events"]
    said: Int64[np.ndarray, " events"]


@torch.no_grad()
def review(predictor: EventPredictor, X: Any) -> Review:
    """Ask for each event with what came before it.

    Example:
        >>> from contiformer import EventPredictor
        >>> X = [([0.0, 1.0, 2.0, 3.5], [0, 1, 0, 1])] * 4
        >>> review(EventPredictor(backbone="hp", verbose=0).fit(X), X[:1]).wait.round(3).tolist()
        [1.0, 1.0, 1.5]
    """
    parts = []
    for batch in predictor._batches(predictor._read(X).data):
        scored = intervals(predictor._model, batch)
        if not scored.wait.shape[1]:
            continue
        said = expect(predictor._model, scored.memory)
        answers = (scored.wait, said.mean, scored.kind, said.kinds.argmax(-1))
        parts.append([x[scored.known].cpu().numpy() for x in answers])
    wait, expected, kind, best = (np.concatenate(x) for x in zip(*parts, strict=True)) if parts else [np.zeros(0)] * 4
    unit = predictor.scaling_.unit
    return Review(
        unit * wait.astype(np.float64), unit * expected.astype(np.float64), kind.astype(int), best.astype(int)
    )

"""The log-likelihood of event sequences: one code for all models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.data.event_batch import EventBatch
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.memory import Memory
from contiformer.tasks.events.quadrature import IntegralRule, compensator


@dataclass(frozen=True)
class Intervals:
    """From each event to the next: the history, the wait, and the type of what comes.

    The first event of a sequence is given and not scored, so L events have L - 1 intervals.
    """

    memory: Memory
    wait: Float[Tensor, "batch intervals"]
    kind: Float[Tensor, "batch intervals"]
    known: Bool[Tensor, "batch intervals"]


def intervals(model: IntensityModel, events: EventBatch) -> Intervals:
    """What is scored of a batch."""
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    known = events.mask[:, 1:]
    wait = torch.where(known, events.times.diff(dim=1), 0.0).to(dtype)
    return Intervals(model.remember(events).cut(slice(None, -1)), wait, events.types[:, 1:], known)


def log_likelihood(
    model: IntensityModel, scored: Intervals, rule: IntegralRule | None = None
) -> Float[Tensor, "batch intervals"]:
    """``log λ_{k_{i+1}}(t_{i+1}) - ∫_{t_i}^{t_{i+1}} λ(t) dt`` for each interval, in nats of scaled time; 0 if none."""
    if not scored.wait.numel():
        return scored.wait
    log_rate = model.log_rates(scored.memory, scored.wait.unsqueeze(-1)).squeeze(2)
    event = log_rate.gather(-1, scored.kind.unsqueeze(-1)).squeeze(-1)
    nothing = compensator(model, scored.memory, scored.wait, rule or IntegralRule())
    return torch.where(scored.known, event - nothing, 0.0)

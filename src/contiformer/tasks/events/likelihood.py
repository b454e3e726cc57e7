"""The log-likelihood of event sequences under any intensity model, and the integral in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.data.batch import EventBatch
from contiformer.paths.quadrature import gauss_legendre
from contiformer.tasks.events.intensity import IntensityModel, Memory, PerEvent

RuleName = Literal["closed", "gauss", "monte carlo"]


@dataclass(frozen=True)
class IntegralRule:
    """The rule for ``Λ_i = ∫_0^{wait} λ(t_i + s) ds``.

    Attributes:
        name: "closed", the default: closed form where the model has one, "gauss" otherwise; "gauss": Gauss–Legendre
            with ``nodes`` points in each interval between events; "monte carlo": the mean over ``nodes`` points drawn
            evenly from the interval, as in the paper.
        nodes: points in each interval.

    Example:
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import IntegralRule, build_model, intervals, log_likelihood
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> scored = intervals(model, collate_events(data))
        >>> log_likelihood(model, scored, IntegralRule("gauss", nodes=4))  # -log 2 - wait
        tensor([[-1.6931, -2.6931]], grad_fn=<WhereBackward0>)
    """

    name: RuleName = "closed"
    nodes: int = 8

    def __post_init__(self) -> None:
        if self.name not in ("closed", "gauss", "monte carlo"):
            raise ValueError(f"the integral must be 'closed', 'gauss' or 'monte carlo', got {self.name!r}")
        if not 1 <= self.nodes <= 1000:
            raise ValueError(f"nodes must be from 1 to 1000, got {self.nodes}")


def compensator(model: IntensityModel, memory: Memory, wait: PerEvent, rule: IntegralRule) -> PerEvent:
    """``∫_0^{wait} λ(t_i + s) ds`` after each event."""
    if rule.name == "closed":
        closed = model.integral(memory, wait.unsqueeze(-1))
        if closed is not None:
            return closed.squeeze(-1)
    if rule.name == "monte carlo":
        share = torch.rand(*wait.shape, rule.nodes, dtype=wait.dtype, device=wait.device)
        return wait * model.total(memory, wait.unsqueeze(-1) * share).mean(-1)
    x, w = (torch.as_tensor(part, dtype=wait.dtype, device=wait.device) for part in gauss_legendre(rule.nodes))
    return wait * (model.total(memory, wait.unsqueeze(-1) * x) @ w)


@dataclass(frozen=True)
class Intervals:
    """From each event to the next: the history, the wait, and the type of the next event.

    The first event of a sequence is given and not scored, so L events have L - 1 intervals.

    Example:
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import build_model, intervals
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> scored = intervals(model, collate_events(data))
        >>> scored.wait.tolist(), scored.kind.tolist()
        ([[1.0, 2.0]], [[1, 0]])
    """

    memory: Memory
    wait: Float[Tensor, "batch intervals"]
    kind: Int[Tensor, "batch intervals"]
    known: Bool[Tensor, "batch intervals"]


def intervals(model: IntensityModel, events: EventBatch) -> Intervals:
    """The scored intervals of a batch."""
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

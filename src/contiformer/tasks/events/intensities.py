"""Intensities that are read from the state at the last event, and the functions that they share."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.intensity import Intensity, Memory, PerEvent, PerMoment, PerType

#: The state of an encoder after each event.
States = Float[Tensor, "batch events d"]
#: Below this, ``log softplus(x)`` is x to seven digits.
_LOW = -15.0
#: Logarithms of intensities end here, so that their integrals over waits of 1e12 do not overflow float32.
LARGEST_LOG = 40.0


class StateIntensity(Intensity):
    """Base class of intensities whose memory is made of the encoder's states by :meth:`rows`."""

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__()
        self.d_model, self.num_types = d_model, len(scaling.counts)

    @abstractmethod
    def rows(self, states: States, times: PerEvent) -> dict[str, Tensor]:
        """The rows of the memory; times are scaled, the first event of a sequence being at 0."""

    def tie(self, embedding: nn.Embedding) -> None:
        """Share the encoder's embedding of types, where the intensity has one; nothing by default."""


class SoftplusRates(Intensity):
    """``λ_k = β_k softplus(x_k / β_k)`` with learned β, kept as their logarithms."""

    log_softness: nn.Parameter

    @abstractmethod
    def inside(self, memory: Memory, elapsed: PerMoment) -> PerType:
        """``x_k / β_k``."""

    def rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        return self.log_softness.exp() * softplus(self.inside(memory, elapsed))

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        return self.log_softness + log_softplus(self.inside(memory, elapsed))


class MonotoneIntensity(SoftplusRates, StateIntensity):
    """:class:`SoftplusRates` with an ``x_k`` that only grows or only falls in the elapsed time."""

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__(d_model, scaling)
        self.log_softness = nn.Parameter(torch.zeros(self.num_types))

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """The larger of the two ends, type by type."""
        return self.rates(memory, torch.stack([low, high], -1)).amax(2).sum(-1)


class SoftplusIntensity(MonotoneIntensity):
    """``λ_k(t) = β_k log(1 + exp((α_k (t - t_j) / t_j + w_k·h(t_j) + b_k) / β_k))`` after the event at ``t_j``.

    The paper's formula, from Zuo et al., "Transformer Hawkes Process" (ICML 2020). It depends on where time begins,
    and is not defined for an event at 0. Here time is measured in mean waits and the first event of a sequence is at
    1, which is what the original code's ``t_j + 1`` does to data that begin at 0.

    Args:
        relative: divide by ``t_j``; otherwise plain ``α_k (t - t_j)``.
    """

    def __init__(self, d_model: int, scaling: EventScaling, *, relative: bool = True) -> None:
        super().__init__(d_model, scaling)
        self.relative = relative
        self.linear = nn.Linear(d_model, self.num_types)
        nn.init.normal_(self.linear.weight, std=0.5 * d_model**-0.5)
        self.linear.bias.data = inverse_softplus(mean_rates(scaling))
        self.slope = nn.Parameter(torch.full((self.num_types,), -0.1))

    def rows(self, states: States, times: PerEvent) -> dict[str, Tensor]:
        """``(w·h + b) / β``, and what the elapsed time is divided by."""
        scale = times + 1 if self.relative else torch.ones_like(times)
        return {"start": self.linear(states) / self.log_softness.exp(), "scale": scale.to(states.dtype)}

    def inside(self, memory: Memory, elapsed: PerMoment) -> PerType:
        gone = elapsed / memory["scale"].unsqueeze(-1)
        return torch.addcmul(memory["start"].unsqueeze(2), self.slope / self.log_softness.exp(), gone.unsqueeze(-1))


def log_softplus(x: Tensor) -> Tensor:
    """``log log(1 + exp(x))``, which is x for very negative x."""
    return torch.where(x < _LOW, x, softplus(x.clamp(min=_LOW)).log())


def inverse_softplus(rate: Tensor) -> Tensor:
    """The number whose softplus is a rate."""
    return rate + torch.log(-torch.expm1(-rate))


def mean_rates(scaling: EventScaling) -> Float[Tensor, " types"]:
    """Events of each type in a mean wait; half an event of a type that was never seen."""
    counts = torch.tensor(scaling.counts, dtype=torch.float64).clamp(min=0.5)
    return (counts / counts.sum()).float()


def exponential_mean(first: Tensor, last: Tensor) -> Tensor:
    """The mean of ``exp(x)`` for x going evenly from first to last, ``(exp(last) - exp(first)) / (last - first)``."""
    first, last = first.clamp(max=LARGEST_LOG), last.clamp(max=LARGEST_LOG)
    rise = last - first
    small = rise.abs() < 1e-3
    safe = torch.where(small, 1.0, rise)
    ratio = torch.where(small, 1 + rise / 2 + rise.square() / 6, torch.expm1(-safe.abs()) / -safe.abs())
    # expm1 of the falling side, so that nothing overflows
    return torch.where(small, first, torch.maximum(first, last)).exp() * ratio

"""From states to intensities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.memory import Memory

#: Below this, ``log softplus(x)`` is x to seven digits.
_LOW = -15.0


class IntensityHead(nn.Module, ABC):
    """Intensities after an event, from the state at that event.

    The methods are those of :class:`~contiformer.tasks.events.IntensityModel`; memory holds what :meth:`rows` made.
    """

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__()
        self.d_model, self.num_types = d_model, len(scaling.counts)

    @abstractmethod
    def rows(
        self, states: Float[Tensor, "batch events d"], times: Float[Tensor, "batch events"]
    ) -> dict[str, Float[Tensor, "batch events ..."]]:
        """What is kept of the states; times are scaled, the first event of a sequence being at 0."""

    @abstractmethod
    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Intensities of all types."""

    @abstractmethod
    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Their logarithms."""

    @abstractmethod
    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """A number that the sum of the intensities does not exceed from ``low`` to ``high``."""

    def total(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"]:
        """The sum over all types."""
        return self.rates(memory, elapsed).sum(-1)

    def integral(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"] | None:
        """``∫_0^elapsed`` of the sum, where there is a closed form."""
        return None

    def calibrate(self, losses: Callable[[], float]) -> None:
        """Adjust how sure the head is by what that costs on validation sequences; nothing by default."""


class MonotoneHead(IntensityHead):
    """``λ_k(s) = β_k softplus(x_k(s) / β_k)`` with an ``x_k`` that only grows or only falls in s.

    Then no intensity is larger than at one of the two ends.
    """

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__(d_model, scaling)
        self.log_softness = nn.Parameter(torch.zeros(self.num_types))

    @abstractmethod
    def inside(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments types"]:
        """``x_k / β_k``."""

    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """See the class."""
        return self.log_softness.exp() * softplus(self.inside(memory, elapsed))

    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Without underflow."""
        return self.log_softness + log_softplus(self.inside(memory, elapsed))

    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """The larger of the two ends, type by type."""
        return self.rates(memory, torch.stack([low, high], -1)).amax(2).sum(-1)


def soft(x: Float[Tensor, "*shape types"], log_softness: Float[Tensor, " types"]) -> Float[Tensor, "*shape types"]:
    """``β softplus(x / β)`` with β given by its logarithm."""
    softness = log_softness.exp()
    return softness * softplus(x / softness)


def log_soft(x: Float[Tensor, "*shape types"], log_softness: Float[Tensor, " types"]) -> Float[Tensor, "*shape types"]:
    """The logarithm of :func:`soft`, which is linear for very negative x."""
    return log_softness + log_softplus(x / log_softness.exp())


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

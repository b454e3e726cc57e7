"""The intensity of the recurrent marked temporal point process."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.heads.base import IntensityHead, mean_rates
from contiformer.tasks.events.memory import Memory

#: Logarithms of intensities end here, so that their integrals over waits of 1e12 do not overflow float32.
_MOST = 40.0


class ExponentialHead(IntensityHead):
    """``λ(t) = exp(v·h(t_j) + w (t - t_j) + b)``, of which ``p_k = softmax_k(U h(t_j) + c)`` is for type k.

    From Du et al., "Recurrent Marked Temporal Point Processes" (KDD 2016). The integral has a closed form,
    ``∫_0^s λ = (exp(x + w s) - exp(x)) / w`` with ``x = v·h + b``.
    """

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__(d_model, scaling)
        self.level = nn.Linear(d_model, 1)
        self.slope = nn.Parameter(torch.tensor(-0.1))
        self.kind = nn.Linear(d_model, self.num_types)
        nn.init.zeros_(self.level.bias)
        self.kind.bias.data = mean_rates(scaling).log()

    def rows(
        self, states: Float[Tensor, "batch events d"], times: Float[Tensor, "batch events"]
    ) -> dict[str, Float[Tensor, "batch events ..."]]:
        """``v·h + b`` and the logarithms of ``p_k``."""
        return {"level": self.level(states), "kind": self.kind(states).log_softmax(-1)}

    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """See the class."""
        return self.log_rates(memory, elapsed).exp()

    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Linear in the elapsed time."""
        return (memory["level"] + self.slope * elapsed).clamp(max=_MOST).unsqueeze(-1) + memory["kind"].unsqueeze(2)

    def total(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"]:
        """The types' shares add up to 1."""
        return (memory["level"] + self.slope * elapsed).clamp(max=_MOST).exp()

    def integral(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"]:
        """In closed form, also where a part of the wait is at the largest intensity."""
        first, rise = memory["level"], self.slope * elapsed
        over = (torch.maximum(first, first + rise) - _MOST).clamp(min=0)
        crosses = rise.abs() > over
        at_most = torch.where(crosses, over / torch.where(crosses, rise.abs(), 1.0), (over > 0).to(over.dtype))
        return elapsed * torch.lerp(exponential_mean(first, first + rise), over.new_tensor(_MOST).exp(), at_most)

    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """The larger of the two ends."""
        return self.total(memory, torch.stack([low, high], -1)).amax(-1)


def exponential_mean(first: Tensor, last: Tensor) -> Tensor:
    """The mean of ``exp(x)`` for x going evenly from first to last, ``(exp(last) - exp(first)) / (last - first)``."""
    first, last = first.clamp(max=_MOST), last.clamp(max=_MOST)
    rise = last - first
    small = rise.abs() < 1e-3
    safe = torch.where(small, 1.0, rise)
    ratio = torch.where(small, 1 + rise / 2 + rise.square() / 6, torch.expm1(-safe.abs()) / -safe.abs())
    # expm1 of the falling side, so that nothing overflows
    return torch.where(small, first, torch.maximum(first, last)).exp() * ratio

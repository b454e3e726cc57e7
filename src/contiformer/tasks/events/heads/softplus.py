"""The intensity of the transformer Hawkes process, and the paper's."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.heads.base import MonotoneHead, inverse_softplus, mean_rates
from contiformer.tasks.events.memory import Memory


class SoftplusHead(MonotoneHead):
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

    def rows(
        self, states: Float[Tensor, "batch events d"], times: Float[Tensor, "batch events"]
    ) -> dict[str, Float[Tensor, "batch events ..."]]:
        """``(w·h + b) / β``, and what the elapsed time is divided by."""
        scale = times + 1 if self.relative else torch.ones_like(times)
        return {"start": self.linear(states) / self.log_softness.exp(), "scale": scale.to(states.dtype)}

    def inside(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments types"]:
        """Linear in the elapsed time."""
        gone = elapsed / memory["scale"].unsqueeze(-1)
        return torch.addcmul(memory["start"].unsqueeze(2), self.slope / self.log_softness.exp(), gone.unsqueeze(-1))

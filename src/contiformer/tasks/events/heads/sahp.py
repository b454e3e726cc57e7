"""The intensity of the self-attentive Hawkes process."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, softplus

from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.heads.base import MonotoneHead, inverse_softplus, mean_rates
from contiformer.tasks.events.memory import Memory


class ConvergingHead(MonotoneHead):
    """``λ_k(t) = softplus(μ_k + (η_k - μ_k) exp(-γ_k (t - t_j)))``: from one level to another, exponentially.

    From Zhang et al., "Self-Attentive Hawkes Process" (ICML 2020), where ``μ = gelu(W_μ h)``, ``η = gelu(W_η h)`` and
    ``γ = softplus(W_γ h)``.

    Deviations: ``μ`` and ``η`` have a bias, without which no intensity could fall below softplus(-0.17).
    """

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__(d_model, scaling)
        self.target, self.start, self.decay = (nn.Linear(d_model, self.num_types) for _ in range(3))
        self.bias = nn.Parameter(inverse_softplus(mean_rates(scaling)))
        self.log_softness.requires_grad_(False)

    def rows(
        self, states: Float[Tensor, "batch events d"], times: Float[Tensor, "batch events"]
    ) -> dict[str, Float[Tensor, "batch events ..."]]:
        """``μ``, ``η`` and ``γ``."""
        return {
            "target": gelu(self.target(states)) + self.bias,
            "start": gelu(self.start(states)) + self.bias,
            "decay": softplus(self.decay(states)),
        }

    def inside(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments types"]:
        """Between ``η`` and ``μ``; β is 1."""
        target, start, decay = (memory[name].unsqueeze(2) for name in ("target", "start", "decay"))
        return target + (start - target) * torch.exp(-decay * elapsed.unsqueeze(-1))

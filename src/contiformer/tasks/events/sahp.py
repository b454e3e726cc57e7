"""The self-attentive Hawkes process (SAHP): encoder and intensity."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, softplus

from contiformer.backbones.base import check_positive
from contiformer.backbones.encoder_layer import EncoderLayer, Tokens, encode
from contiformer.data.batch import EventBatch
from contiformer.data.scaling import EventScaling
from contiformer.nn.dropout import Dropout
from contiformer.tasks.events.encoder import EventInput
from contiformer.tasks.events.intensities import MonotoneIntensity, States, inverse_softplus, mean_rates
from contiformer.tasks.events.intensity import Memory, PerEvent, PerMoment, PerType

Shift = Literal["time", "wait"]


class ShiftedPositions(nn.Module):
    """``e_i = [sin(ω_m i + w_m t_i), cos(ω_m i + w_m t_i)]``: positions whose phase is shifted by the time.

    ``ω_m = 10000^(-2m / d)`` are those of the transformer, the ``w_m`` are learned.

    Shapes: t [B, L] -> [B, L, d_model].
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        pairs = -(-d_model // 2)
        self.d_model = d_model
        # plain numbers, because a buffer would be rounded by model.half() and stay so
        self.frequencies = tuple(10000.0 ** (-2 * m / d_model) for m in range(pairs))
        self.shift = nn.Parameter(torch.empty(pairs).uniform_(-1, 1))

    def forward(self, t: PerEvent) -> States:
        """Angles as wide as the times, since those may be large; the result as wide as the parameters."""
        order = torch.arange(t.shape[1], dtype=t.dtype, device=t.device).unsqueeze(-1)
        fixed = torch.tensor(self.frequencies, dtype=t.dtype, device=t.device)
        angle = order * fixed + t.unsqueeze(-1) * self.shift.to(t.dtype)
        return torch.cat([angle.sin(), angle.cos()], -1)[..., : self.d_model].to(self.shift.dtype)


class SAHPEncoder(nn.Module):
    """Causal self-attention over events with time-shifted positions.

    From Zhang et al., "Self-Attentive Hawkes Process" (ICML 2020): ``x_i = emb(k_i) + e_i`` with
    :class:`ShiftedPositions` ``e_i``, and layers of multi-head attention

        a_i = Σ_{j ≤ i} softmax_j(Q x_i · K x_j / √d_k) V x_j

    each with a feed-forward block, residual connections and layer normalisation after the sum. The paper's intensity is
    :class:`ConvergingIntensity` of these states.

    Deviations:
        - An event also attends to itself. The paper's sum ends one before the query, whose own time and type would be
          those of the event that is to be predicted.
        - Half of the channels have the cosine, as in the transformer, where the paper writes the sine only.
        - Scores are divided by ``√d_k``, which the paper's formula leaves out.
        - Further features of events, if there are any, are added to the embedding.

    Phases are shifted by the time since the first event, in mean waits, as in the paper (``shift="time"``), or by the
    wait before the event (``shift="wait"``).

    Shapes: [B, L] events -> [B, L, d_model]; row i has seen events up to i.
    """

    intensity = "sahp"

    def __init__(
        self,
        scaling: EventScaling,
        d_model: int = 64,
        n_layers: int = 1,
        dropout: float = 0.1,
        *,
        n_heads: int = 4,
        d_ff: int | None = None,
        shift: Shift = "time",
    ) -> None:
        super().__init__()
        check_positive(n_layers=n_layers)
        if shift not in ("time", "wait"):
            raise ValueError(f"shift must be 'time' or 'wait', got {shift!r}")
        self.d_model, self.shift = d_model, shift
        self.input, self.positions = EventInput(scaling, d_model), ShiftedPositions(d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, dropout, activation=nn.GELU) for _ in range(n_layers)
        )

    def forward(self, events: EventBatch) -> States:
        times = events.times
        if self.shift == "wait":
            times = times.diff(dim=1, prepend=times[:, :1])
        x = self.dropout(self.input(events) + self.positions(times))
        length = x.shape[1]
        before = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        # padding comes last, so that the events' rows never look at it; its own rows look at the events
        sees = before & events.mask.unsqueeze(1)
        return encode(self.layers, Tokens(x, events.times, events.mask, sees), asked=False)


class ConvergingIntensity(MonotoneIntensity):
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

    def rows(self, states: States, times: PerEvent) -> dict[str, Tensor]:
        """``μ``, ``η`` and ``γ``."""
        return {
            "target": gelu(self.target(states)) + self.bias,
            "start": gelu(self.start(states)) + self.bias,
            "decay": softplus(self.decay(states)),
        }

    def inside(self, memory: Memory, elapsed: PerMoment) -> PerType:
        """Between ``η`` and ``μ``; β is 1."""
        target, start, decay = (memory[name].unsqueeze(2) for name in ("target", "start", "decay"))
        return target + (start - target) * torch.exp(-decay * elapsed.unsqueeze(-1))

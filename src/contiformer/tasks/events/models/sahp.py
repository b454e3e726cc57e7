"""The attentive encoder of SAHP."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.encoder_layer import EncoderLayer
from contiformer.backbones.tokens import Tokens, encode
from contiformer.data.event_batch import EventBatch
from contiformer.data.event_scaling import EventScaling
from contiformer.nn.dropout import Dropout
from contiformer.tasks.events.inputs import EventInput

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

    def forward(self, t: Float[Tensor, "batch events"]) -> Float[Tensor, "batch events d"]:
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

    each with a feed-forward block, residual connections and layer normalisation. The paper's intensity is
    :class:`~contiformer.tasks.events.heads.ConvergingHead`, to be put on these states.

    Deviations:
        - An event also attends to itself. The paper's sum ends one before the query, whose own time and type would be
          those of the event that is to be predicted.
        - Half of the channels have the cosine, as in the transformer, where the paper writes the sine only.
        - Normalisation is after the residual sum (:class:`~contiformer.backbones.encoder_layer.EncoderLayer`).
        - Scores are divided by ``√d_k``, which the paper's formula leaves out.
        - Further features of events, if there are any, are added to the embedding.

    Args:
        scaling: of the training sequences.
        d_model, n_layers, dropout: the usual sizes.
        n_heads, d_ff: heads, and the width of the feed-forward block (None: ``4 * d_model``).
        shift: "time": phases are shifted by the time since the first event, in mean waits, as in the paper; "wait": by
            the wait before the event.

    Shapes: [B, L] events -> [B, L, d_model]; row i has seen events up to i.
    """

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
        if n_layers < 1:
            raise ValueError(f"n_layers must be positive, got {n_layers}: use 1 or more")
        if shift not in ("time", "wait"):
            raise ValueError(f"shift must be 'time' or 'wait', got {shift!r}")
        self.d_model, self.shift = d_model, shift
        self.input, self.positions = EventInput(scaling, d_model), ShiftedPositions(d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, dropout, activation=nn.GELU) for _ in range(n_layers)
        )

    def forward(self, events: EventBatch) -> Float[Tensor, "batch events d"]:
        """States after each event."""
        times = events.times
        if self.shift == "wait":
            times = times.diff(dim=1, prepend=times[:, :1])
        x = self.dropout(self.input(events) + self.positions(times))
        length = x.shape[1]
        before = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        # padding comes last, so that the events' rows never look at it; its own rows look at the events
        sees = before & events.mask.unsqueeze(1)
        return encode(self.layers, Tokens(x, events.times, events.mask, sees), asked=False)

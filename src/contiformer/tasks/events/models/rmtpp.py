"""The recurrent encoder of RMTPP."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_batch import EventBatch
from contiformer.data.event_scaling import EventScaling
from contiformer.nn.dropout import Dropout
from contiformer.tasks.events.inputs import EventInput, shown_wait, waits_before

Cell = Literal["gru", "lstm", "relu"]


class RMTPPEncoder(nn.Module):
    """A recurrent network on the types of events and the waits between them.

    From Du et al., "Recurrent Marked Temporal Point Processes" (KDD 2016):

        h_i = max(W_y y_i + W_t τ_i + W_h h_{i-1} + b, 0)

    with the embedding ``y_i`` of the type and features ``τ_i`` of the time, here the wait before event i. The paper's
    intensity is :class:`~contiformer.tasks.events.heads.ExponentialHead`, to be put on these states.

    Deviations:
        - The cell is a GRU by default, because a rectifier's state has no limit: it grows beyond float32 in long
          sequences, and the intensity is its exponential. ``cell="relu"`` is the formula above.
        - The wait enters as ``log(1 + wait / 0.01)`` in mean waits, and not as it is: waits range over many decades.
        - Dropout of the inputs, between layers, and of the states; the paper has none.
        - Further features of events, if there are any, are added to ``y_i``.

    Args:
        scaling: of the training sequences.
        d_model: width of states and embeddings.
        n_layers: recurrent layers on top of each other.
        dropout: see above.
        cell: "gru", "lstm" or "relu".

    Shapes: [B, L] events -> [B, L, d_model]; row i has seen events up to i.
    """

    def __init__(
        self,
        scaling: EventScaling,
        d_model: int = 64,
        n_layers: int = 1,
        dropout: float = 0.1,
        *,
        cell: Cell = "gru",
    ) -> None:
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"n_layers must be positive, got {n_layers}: use 1 or more")
        if cell not in ("gru", "lstm", "relu"):
            raise ValueError(f"cell must be 'gru', 'lstm' or 'relu', got {cell!r}")
        self.d_model = d_model
        self.input = EventInput(scaling, d_model)
        self.dropout = Dropout(dropout)
        between = dropout if n_layers > 1 else 0.0
        sizes = {"num_layers": n_layers, "batch_first": True, "dropout": between}
        self.recurrent: nn.RNNBase
        if cell == "relu":
            self.recurrent = nn.RNN(d_model + 1, d_model, nonlinearity="relu", **sizes)
        else:
            self.recurrent = (nn.GRU if cell == "gru" else nn.LSTM)(d_model + 1, d_model, **sizes)

    def forward(self, events: EventBatch) -> Float[Tensor, "batch events d"]:
        """States after each event."""
        x = self.input(events)
        if not x.shape[1]:
            return x
        wait = shown_wait(waits_before(events, x.dtype)).unsqueeze(-1)
        states, _ = self.recurrent(torch.cat([self.dropout(x), wait], -1))
        return self.dropout(states)

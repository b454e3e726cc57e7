"""The recurrent marked temporal point process (RMTPP): encoder and intensity."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from contiformer.backbones.base import check_positive
from contiformer.data.batch import EventBatch
from contiformer.data.scaling import EventScaling
from contiformer.nn.dropout import Dropout
from contiformer.tasks.events.encoder import EventInput, waits_before
from contiformer.tasks.events.intensities import LARGEST_LOG, StateIntensity, States, exponential_mean, mean_rates
from contiformer.tasks.events.intensity import Memory, PerEvent, PerMoment, PerType

#: Waits are shown as ``log(1 + wait / _SHORT)``, in mean waits: from 1e-9 to 1e6 they stay of order one to ten.
_SHORT = 0.01
Cell = Literal["gru", "lstm", "relu"]


class RMTPPEncoder(nn.Module):
    """A recurrent network on the types of events and the waits between them.

    From Du et al., "Recurrent Marked Temporal Point Processes" (KDD 2016):

        h_i = max(W_y y_i + W_t τ_i + W_h h_{i-1} + b, 0)

    with the embedding ``y_i`` of the type and features ``τ_i`` of the time, here the wait before event i. The paper's
    intensity is :class:`ExponentialIntensity` of these states.

    Deviations:
        - The cell is a GRU by default, because a rectifier's state has no limit: it grows beyond float32 in long
          sequences, and the intensity is its exponential. ``cell="relu"`` is the formula above.
        - The wait enters as ``log(1 + wait / 0.01)`` in mean waits, and not as it is: waits range over many decades.
        - Dropout of the inputs, between layers, and of the states; the paper has none.
        - Further features of events, if there are any, are added to ``y_i``.

    Shapes: [B, L] events -> [B, L, d_model]; row i has seen events up to i.
    """

    intensity = "rmtpp"

    def __init__(
        self, scaling: EventScaling, d_model: int = 64, n_layers: int = 1, dropout: float = 0.1, *, cell: Cell = "gru"
    ) -> None:
        super().__init__()
        check_positive(n_layers=n_layers)
        if cell not in ("gru", "lstm", "relu"):
            raise ValueError(f"cell must be 'gru', 'lstm' or 'relu', got {cell!r}")
        self.d_model = d_model
        self.input = EventInput(scaling, d_model)
        self.dropout = Dropout(dropout)
        kinds: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM, "relu": partial(nn.RNN, nonlinearity="relu")}
        between = dropout if n_layers > 1 else 0.0
        self.recurrent = kinds[cell](d_model + 1, d_model, num_layers=n_layers, batch_first=True, dropout=between)

    def forward(self, events: EventBatch) -> States:
        x = self.input(events)
        if not x.shape[1]:
            return x
        wait = torch.log1p(waits_before(events, x.dtype) / _SHORT).unsqueeze(-1)
        states, _ = self.recurrent(torch.cat([self.dropout(x), wait], -1))
        return self.dropout(states)


class ExponentialIntensity(StateIntensity):
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

    def rows(self, states: States, times: PerEvent) -> dict[str, Tensor]:
        """``v·h + b`` and the logarithms of ``p_k``."""
        return {"level": self.level(states), "kind": self.kind(states).log_softmax(-1)}

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        level = (memory["level"] + self.slope * elapsed).clamp(max=LARGEST_LOG)
        return level.unsqueeze(-1) + memory["kind"].unsqueeze(2)

    def total(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        """The types' shares add up to 1."""
        return (memory["level"] + self.slope * elapsed).clamp(max=LARGEST_LOG).exp()

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        """In closed form, also where a part of the wait is at the largest intensity."""
        first, rise = memory["level"], self.slope * elapsed
        over = (torch.maximum(first, first + rise) - LARGEST_LOG).clamp(min=0)
        crosses = rise.abs() > over
        at_most = torch.where(crosses, over / torch.where(crosses, rise.abs(), 1.0), (over > 0).to(over.dtype))
        return elapsed * torch.lerp(exponential_mean(first, first + rise), over.new_tensor(LARGEST_LOG).exp(), at_most)

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """The larger of the two ends."""
        return self.total(memory, torch.stack([low, high], -1)).amax(-1)

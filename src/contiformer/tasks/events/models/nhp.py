"""The neural Hawkes process."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from contiformer.data.event_batch import EventBatch
from contiformer.data.event_scaling import EventScaling
from contiformer.nn.dropout import Dropout
from contiformer.tasks.events.heads.base import log_softplus, mean_rates
from contiformer.tasks.events.inputs import EventInput, waits_before
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.memory import Memory
from contiformer.tasks.events.models.decaying_cells import decaying_cells


class NeuralHawkesModel(IntensityModel):
    """A continuous-time LSTM, whose cells decay from where an event put them towards where they would rest.

    From Mei & Eisner, "The Neural Hawkes Process" (NeurIPS 2017). At event i of type k, with ``h = h(t_i)``:

        i, f, o, ī, f̄ = σ(W x_k + U h + d),   z = 2σ(W x_k + U h + d) - 1,   δ = softplus(W x_k + U h + d)
        c_i = f ⊙ c(t_i) + i ⊙ z,   c̄_i = f̄ ⊙ c̄_{i-1} + ī ⊙ z

    and after it ``c(t) = c̄_i + (c_i - c̄_i) exp(-δ_i (t - t_i))``, ``h(t) = o_i ⊙ (2σ(2c(t)) - 1)`` and

        λ_k(t) = s_k softplus(w_k·h(t) / s_k).

    As in the original, the cells begin at 0 and first read an event that begins every sequence (BOS).

    Deviations:
        - BOS is at the time of the first event, which is where time begins here; the original has a time 0 of its own.
        - ``w_k / s_k`` is what is learned in place of ``w_k``, and ``s_k`` begins as the type's mean rate over log 2,
          so that an untrained model is near a Poisson process with the right rates. The family of models is the same.
        - Dropout of the inputs, in training only; the original has none.
        - Further features of events, if there are any, are added to ``x_k``.

    Args:
        scaling: of the training sequences.
        d_model: cells, and the width of the types' embeddings.
        n_layers: 1, as in the paper.
        dropout: of the inputs.

    Shapes: memory "cell" (c), "rest" (c̄), "decay" (δ) and "out" (o), all [B, L, d_model].
    """

    def __init__(self, scaling: EventScaling, d_model: int = 64, n_layers: int = 1, dropout: float = 0.1) -> None:
        super().__init__()
        if n_layers != 1:
            raise ValueError(f"the neural Hawkes process has one layer, got n_layers={n_layers}: use a larger d_model")
        self.d_model, self.num_types = d_model, len(scaling.counts)
        self.input = EventInput(scaling, d_model)
        self.begin = nn.Parameter(torch.randn(d_model))
        self.dropout = Dropout(dropout)
        # in the order f, f̄, i, ī, o, z, δ
        self.from_input = nn.Linear(d_model, 7 * d_model)
        self.from_state = nn.Linear(d_model, 7 * d_model, bias=False)
        self.pull = nn.Linear(d_model, self.num_types, bias=False)
        self.log_scale = nn.Parameter(torch.log(mean_rates(scaling) / math.log(2)))

    @property
    def width(self) -> int:
        """All cells are computed at a moment."""
        return max(self.d_model, self.num_types)

    def remember(self, events: EventBatch) -> Memory:
        """The cells after each event; everything that does not depend on them is computed before the recurrence."""
        begin = self.from_input(self.begin).expand(len(events), 1, -1)
        gates = torch.cat([begin, self.from_input(self.dropout(self.input(events)))], 1)
        waits = pad(waits_before(events, self.from_state.weight.dtype), (1, 0))
        after = decaying_cells(gates.transpose(0, 1), waits.T, self.from_state)
        both, decay, out = (x[1:].transpose(0, 1) for x in after)
        return Memory({"cell": both[:, :, 0], "rest": both[:, :, 1], "decay": decay, "out": out})

    def _hidden(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments d"]:
        """``h(t)``; 2σ(2c) - 1 is tanh(c)."""
        cell, rest, decay, out = (memory[name].unsqueeze(2) for name in ("cell", "rest", "decay", "out"))
        return out * torch.tanh(torch.lerp(rest, cell, torch.exp(-decay * elapsed.unsqueeze(-1))))

    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """See the class."""
        return self.log_scale.exp() * softplus(self.pull(self._hidden(memory, elapsed)))

    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Without underflow."""
        return self.log_scale + log_softplus(self.pull(self._hidden(memory, elapsed)))

    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """Every cell only rises or only falls, so each product ``w_kd h_d(t)`` is largest at one of the two ends.

        ``w_k·h(t) ≤ Σ_d max(w_kd h_d(low), w_kd h_d(high)) = w_k⁺·max(h) + w_k⁻·min(h)``, and softplus grows.
        """
        ends = self._hidden(memory, torch.stack([low, high], -1))
        weight = self.pull.weight
        most = ends.amax(2) @ weight.clamp(min=0).T + ends.amin(2) @ weight.clamp(max=0).T
        return (self.log_scale.exp() * softplus(most)).sum(-1)

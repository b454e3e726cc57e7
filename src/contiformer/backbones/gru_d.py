"""GRU-D: a GRU whose inputs and states decay while nothing is observed."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States
from contiformer.backbones.recurrence import GatedUpdate, Rows, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout
from contiformer.nn.local_features import fill_channels, time_since_observed


class GRUD(Backbone):
    """GRU with trainable decays of inputs and states.

    Che et al., "Recurrent Neural Networks for Multivariate Time Series with Missing Values", Scientific Reports, 2018.
    With δ_i the time since each channel was last observed before row i (since the first row where it never was), and
    m_i the observation mask::

        γx_i = exp(-max(0, wx ⊙ δ_i + bx))        x̂_i = m_i ⊙ x_i + (1 - m_i) ⊙ (γx_i ⊙ x_last + (1 - γx_i) ⊙ mean)
        γh_i = exp(-max(0, Wh δ_i + bh))          ĥ_i = γh_i ⊙ h_{i-1}
        z_i, r_i = σ(W [x̂_i, m_i] + U ĥ_i + b)    h̃_i = tanh(W [x̂_i, m_i] + U (r_i ⊙ ĥ_i) + b)
        h_i = (1 - z_i) ⊙ ĥ_i + z_i ⊙ h̃_i

    The mean is 0, because values are standardised. The state at a query after row i is what a row there would start
    from, ``exp(-max(0, Wh δ + bh)) ⊙ h_i`` with δ as of the query; at the time of a row it is ``h_i``.

    Deviations: the paper defines one layer, and its dropout is recurrent. Decay weights begin positive, with a mean
    rate of 1 per unit of time (about a series), where ``max(0, ·)`` has a gradient.
    """

    citation = "Che et al., Recurrent Neural Networks for Multivariate Time Series with Missing Values, 2018"
    capabilities = Capabilities(causal=True)

    def __init__(self, input_size: int, d_model: int = 64, *, n_layers: int = 1, dropout: float = 0.1) -> None:
        super().__init__(input_size, d_model, n_layers)
        self.input_rate = nn.Parameter(2 * torch.rand(input_size))
        self.input_bias = nn.Parameter(torch.zeros(input_size))
        self.layers = nn.ModuleList(
            DecayingGRU(2 * input_size if layer == 0 else d_model, d_model, input_size) for layer in range(n_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        dtype = self.input_rate.dtype
        rows = Rows.of(batch, dtype)
        ages = time_since_observed(rows.times, rows.observed)
        missed = time_missed(rows, ages).to(dtype)
        x = torch.cat([self.impute(rows, missed), rows.observed.to(dtype)], dim=-1)
        for number, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if number else x, missed)
        if query_times is None:
            return self.dropout(state_after(x, rows.passed))
        passed, elapsed = rows.until(query_times)
        since = elapsed.unsqueeze(-1)
        decay = cast(DecayingGRU, self.layers[-1]).decay((state_after(ages, passed) + since).to(dtype))
        return self.dropout(state_after(x, passed) * torch.where(since > 0, decay, 1.0))

    def impute(self, rows: Rows, missed: Float[Tensor, "batch rows channels"]) -> Float[Tensor, "batch rows channels"]:
        """x̂: the observed values, and elsewhere the last observation, decaying to the mean."""
        decay = torch.exp(-(missed * self.input_rate + self.input_bias).relu())
        last = fill_channels(rows.values, rows.times, rows.observed, causal=True)
        return torch.where(rows.observed, rows.values, decay * last)


def time_missed(rows: Rows, ages: Float[Tensor, "batch rows channels"]) -> Float[Tensor, "batch rows channels"]:
    """δ: time since each channel was last observed before a row, from the same with that row included."""
    before = torch.cat([torch.zeros_like(ages[:, :1]), ages[:, :-1]], dim=1)
    return before + rows.gaps.unsqueeze(-1)


class DecayingGRU(nn.Module):
    """One layer: inputs x [B, N, input_size] and times since observed [B, N, channels] -> states [B, N, d]."""

    def __init__(self, input_size: int, d_model: int, channels: int) -> None:
        super().__init__()
        self.update = GatedUpdate(input_size, d_model)
        self.rate = nn.Linear(channels, d_model)
        nn.init.uniform_(self.rate.weight, 0.0, 2.0 / channels)
        nn.init.zeros_(self.rate.bias)

    def decay(self, missed: Float[Tensor, "*shape channels"]) -> Float[Tensor, "*shape d"]:
        """γh."""
        return torch.exp(-self.rate(missed).relu())

    def forward(
        self, x: Float[Tensor, "batch rows input"], missed: Float[Tensor, "batch rows channels"]
    ) -> Float[Tensor, "batch rows d"]:
        decays = self.decay(missed.transpose(0, 1)).unbind(0)
        state = torch.zeros_like(decays[0])
        states = []
        for decay, row in zip(decays, self.update.inputs(x), strict=True):
            state = self.update(decay * state, row)
            states.append(state)
        return torch.stack(states, dim=1)

"""GRU-Δt: a GRU with the time since the row before as an input."""

from __future__ import annotations

import torch
from torch import nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States, check_positive
from contiformer.backbones.recurrence import Rows, gru, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout


class GRUDt(Backbone):
    """GRU on values, observation masks, and the time since the row before; its state is held in between.

    ``h_i = GRU([x_i, m_i, Δ_i], h_{i-1})``, ``Δ_i = t_i - t_{i-1}``, as the GRU-Δt of Kidger et al., "Neural Controlled
    Differential Equations for Irregular Time Series" (NeurIPS 2020) and the RNN-Δt of Rubanova et al. (NeurIPS 2019).

    Args:
        gap_unit: Δ enters as ``log(1 + Δ / gap_unit)``.
        drift: whether the state moves with the time since the last row, ``h(t) = h_i ⊙ (1 + w (t - t_i))``, with ``w``
            learned; False: it is held, as in the papers.

    Deviations: the papers show Δ itself, in the data's unit; small gaps would hardly be seen beside standardised
    values, and large ones would drown them. ``drift`` is the projection of JODIE (Kumar et al., KDD 2019). It begins as
    the held state (w = 0) and leaves states at rows untouched, so ``w`` learns only where there are queries.
    """

    citation = "GRU on values, marks and gaps, as in Rubanova et al., NeurIPS 2019"
    capabilities = Capabilities(causal=True)

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.1,
        gap_unit: float = 0.01,
        drift: bool = True,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive("about the usual gap between rows", gap_unit=gap_unit)
        self.gap_unit = gap_unit
        self.gru = gru(2 * input_size + 1, d_model, n_layers, dropout)
        self.drift = nn.Parameter(torch.zeros(d_model)) if drift else None
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        dtype = next(self.parameters()).dtype
        rows = Rows.of(batch, dtype)
        states, _ = self.gru(rows.inputs_and(torch.log1p(rows.gaps / self.gap_unit)))
        if query_times is None:
            return self.dropout(state_after(states, rows.passed))
        passed, elapsed = rows.until(query_times)
        held = state_after(states, passed)
        if self.drift is not None:
            held = held * (1 + elapsed.to(dtype).unsqueeze(-1) * self.drift)
        return self.dropout(held)

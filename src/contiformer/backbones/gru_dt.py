"""GRU-Δt: a GRU that is told how long ago the row before was."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.recurrence import Rows, check_sizes, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout


class GRUDt(Backbone):
    """GRU on values, marks of what was observed, and the time since the row before; its state is held in between.

    ``h_i = GRU([x_i, m_i, Δ_i], h_{i-1})``, ``Δ_i = t_i - t_{i-1}``, as the GRU-Δt of Kidger et al., "Neural Controlled
    Differential Equations for Irregular Time Series" (NeurIPS 2020) and the RNN-Δt of Rubanova et al. (NeurIPS 2019).

    Args:
        input_size: channels C.
        d_model: width of the state.
        n_layers: GRUs on top of each other.
        dropout: of the states of every layer.
        gap_unit: Δ enters as ``log(1 + Δ / gap_unit)``.
        drift: whether the state moves with the time since the last row, ``h(t) = h_i ⊙ (1 + w (t - t_i))``, with ``w``
            learned; False: it is held, as in the papers.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Deviations: the papers show Δ itself, in the data's unit; in a series of length 1 gaps would hardly be seen beside
    standardised values, and gaps of 1e6 would drown them. The papers do not ask for states between rows other than the
    held one, which knows no time: ``drift`` is the projection of JODIE (Kumar et al., KDD 2019). It begins as the held
    state (w = 0) and leaves the recurrence and states at rows untouched, so ``w`` learns only where there are queries.
    Before the first row the state is zero.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> GRUDt(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "GRU on values, marks and gaps, as in Rubanova et al., NeurIPS 2019"

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
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        if not gap_unit > 0:
            raise ValueError(f"gap_unit must be positive, got {gap_unit}: use about the usual gap between rows")
        self.d_model, self.gap_unit = d_model, gap_unit
        self.capabilities = Capabilities(causal=True)
        self.gru = nn.GRU(
            2 * input_size + 1, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0
        )
        self.drift = nn.Parameter(torch.zeros(d_model)) if drift else None
        self.dropout = Dropout(dropout)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        dtype = next(self.parameters()).dtype
        rows = Rows.of(batch, dtype)
        gaps = (rows.gaps / self.gap_unit).log1p().to(dtype).unsqueeze(-1)
        states, _ = self.gru(torch.cat([rows.values, rows.observed.to(dtype), gaps], dim=-1))
        if query_times is None:
            return self.dropout(state_after(states, rows.passed))
        passed, elapsed = rows.until(query_times)
        held = state_after(states, passed)
        if self.drift is not None:
            held = held * (1 + elapsed.to(dtype).unsqueeze(-1) * self.drift)
        return self.dropout(held)

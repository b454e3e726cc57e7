"""Neural ODE: one trajectory through the last hidden vector of a recurrent encoder."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.ode_rnn import Flow, Solver, tanh_network
from contiformer.backbones.recurrence import Rows, check_sizes, state_after
from contiformer.backbones.trajectory import states_along
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout


class NeuralODE(Backbone):
    """Chen, Rubanova, Bettencourt and Duvenaud, "Neural Ordinary Differential Equations" (NeurIPS 2018).

    ``z(t_N) = GRU(x_1, ..., x_N)`` and ``dz/dt = f(z)``, solved from the last observation back and on: the Neural ODE
    "from the last hidden vector" of the ContiFormer paper's task of spirals. f is a network of ``tanh`` layers.

    Args:
        input_size: channels C.
        d_model: width of z.
        n_layers: GRUs on top of each other in the encoder.
        dropout: between the GRUs, and of the states.
        units, depth: width and number of the hidden layers of f.
        solver, step, max_steps: "rk4", "midpoint" or "euler", the length of a step, and the number of such steps each
            way from the last observation; beyond them steps are longer.
        gap_unit: the encoder is told ``log(1 + gap / gap_unit)``.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Deviations: the paper's time series model is a latent ODE (see ``latent_ode``); of the encoder here the ContiFormer
    paper says nothing, so it is what a GRU is told elsewhere: values, marks of what was observed, and gaps. Rows at
    equal times are taken in their order. A series without observations starts from zero at time 0.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> NeuralODE(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "Chen et al., Neural Ordinary Differential Equations, NeurIPS 2018"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.1,
        units: int = 100,
        depth: int = 2,
        solver: Solver = "rk4",
        step: float = 0.1,
        max_steps: int = 20,
        gap_unit: float = 0.01,
    ) -> None:
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        if not gap_unit > 0:
            raise ValueError(f"gap_unit must be positive, got {gap_unit}: use 0.01")
        self.d_model, self.gap_unit = d_model, gap_unit
        self.capabilities = Capabilities()
        self.encoder = nn.GRU(
            2 * input_size + 1,
            d_model,
            num_layers=n_layers,
            batch_first=True,
            dropout=dropout if n_layers > 1 else 0.0,
        )
        self.field = tanh_network(d_model, units, depth)
        self.flow = Flow(solver, step, max_steps)
        self.dropout = Dropout(dropout)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        dtype = next(self.parameters()).dtype
        rows = Rows.of(batch, dtype)
        gaps = torch.log1p(rows.gaps / self.gap_unit).to(dtype).unsqueeze(-1)
        states, _ = self.encoder(torch.cat([rows.values, rows.observed.to(dtype), gaps], dim=-1))
        last = state_after(states, rows.present.sum(1, keepdim=True)).squeeze(1)
        if query_times is None:
            query_times = torch.where(batch.observed.any(-1), batch.times, rows.times[:, -1:])
        return self.dropout(states_along(self.flow, self.field, last, query_times.to(rows.times) - rows.times[:, -1:]))

"""Neural ODE: one trajectory through the last hidden vector of a recurrent encoder."""

from __future__ import annotations

from typing import Unpack

import torch

from contiformer.backbones.base import Backbone, QueryTimes, States, check_positive
from contiformer.backbones.flow import Flow, FlowOptions, states_along, tanh_network
from contiformer.backbones.recurrence import Rows, gru, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout


class NeuralODE(Backbone):
    """Chen, Rubanova, Bettencourt and Duvenaud, "Neural Ordinary Differential Equations" (NeurIPS 2018).

    ``z(t_N) = GRU(x_1, ..., x_N)`` and ``dz/dt = f(z)``, solved from the last observation back and on: the Neural ODE
    "from the last hidden vector" of the ContiFormer paper's task of spirals. f is a network of ``tanh`` layers.

    Args:
        units, depth: width and number of the hidden layers of f.
        gap_unit: the encoder is told ``log(1 + gap / gap_unit)``.
        flow: solver, step and max_steps each way, see :class:`~contiformer.backbones.flow.Flow`.

    Deviations: the paper's time series model is a latent ODE (see ``latent_ode``); of the encoder here the ContiFormer
    paper says nothing, so it has the inputs of the other GRUs: values, observation masks and gaps.
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
        gap_unit: float = 0.01,
        **flow: Unpack[FlowOptions],
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive("0.01", gap_unit=gap_unit)
        self.gap_unit = gap_unit
        self.encoder = gru(2 * input_size + 1, d_model, n_layers, dropout)
        self.field = tanh_network(d_model, units, depth)
        self.flow = Flow(**flow)
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, next(self.parameters()).dtype)
        states, _ = self.encoder(rows.inputs_and(torch.log1p(rows.gaps / self.gap_unit)))
        last = state_after(states, rows.present.sum(1, keepdim=True)).squeeze(1)
        if query_times is None:
            query_times = torch.where(batch.observed.any(-1), batch.times, rows.times[:, -1:])
        return self.dropout(states_along(self.flow, self.field, last, query_times.to(rows.times) - rows.times[:, -1:]))

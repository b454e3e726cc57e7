"""ODE-RNN: the state follows a differential equation between rows, and a GRU updates it at them."""

from __future__ import annotations

from typing import Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States
from contiformer.backbones.flow import Flow, FlowOptions, tanh_network
from contiformer.backbones.recurrence import GatedUpdate, Rows, state_after
from contiformer.data.batch import Batch
from contiformer.native.dispatch import unhooked, usable
from contiformer.native.rivals.ode_rnn import Network, flowing_gru
from contiformer.nn.dropout import Dropout


class ODERNN(Backbone):
    """Rubanova et al., "Latent ODEs for Irregularly-Sampled Time Series" (NeurIPS 2019), algorithm 1.

    ``h'_i = ODESolve(f, h_{i-1}, t_i - t_{i-1})``, ``h_i = GRU([x_i, m_i], h'_i)``, with f a network of ``tanh`` layers
    that does not see the time, and m_i the observation mask. The state at a query after row i is
    ``ODESolve(f, h_i, t - t_i)``.

    Args:
        units, depth: width and number of the hidden layers of f; the authors' code has 100 and 2.
        flow: solver (the authors' is "euler"), step and max_steps, see :class:`~contiformer.backbones.flow.Flow`.

    Deviations: the GRU is the standard one of algorithm 1, while the authors' code has gates with a hidden layer and
    carries a second, "standard deviation" half of the state; it solves with Euler steps of a 50th of the series
    (``solver="euler", step=0.02``). It solves one set of times for a whole batch; here every series has its own.
    """

    citation = "Rubanova et al., Latent ODEs for Irregularly-Sampled Time Series, NeurIPS 2019"
    capabilities = Capabilities(causal=True)

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.1,
        units: int = 100,
        depth: int = 2,
        **flow: Unpack[FlowOptions],
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        self.flow = Flow(**flow)
        self.layers = nn.ModuleList(
            FlowingGRU(
                2 * input_size if layer == 0 else d_model, d_model, tanh_network(d_model, units, depth), self.flow
            )
            for layer in range(n_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, next(self.parameters()).dtype)
        x, gaps = rows.inputs, rows.gaps
        for number, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if number else x, gaps)
        if query_times is None:
            return self.dropout(state_after(x, rows.passed))
        passed, elapsed = rows.until(query_times)
        return self.dropout(self.flow(cast(FlowingGRU, self.layers[-1]).field, state_after(x, passed), elapsed))


class FlowingGRU(nn.Module):
    """One layer: inputs x [B, N, input_size] and gaps [B, N] before them -> states [B, N, d]."""

    def __init__(self, input_size: int, d_model: int, field: nn.Module, flow: Flow) -> None:
        super().__init__()
        self.field, self.flow = field, flow
        self.update = GatedUpdate(input_size, d_model)

    def forward(
        self, x: Float[Tensor, "batch rows input"], gaps: Float[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows d"]:
        found = self._native(x, gaps)
        if found is not None:
            return found
        state = x.new_zeros(x.shape[0], self.update.candidate.in_features)
        steps = self.flow.steps(gaps.transpose(0, 1), x.dtype)
        states = []
        for durations, row in zip(steps, self.update.inputs(x), strict=True):
            for duration in durations:
                state = self.flow.advance(self.field, state, duration)
            state = self.update(state, row)
            states.append(state)
        return torch.stack(states, dim=1)

    def _native(self, x: Tensor, gaps: Tensor) -> Tensor | None:
        """The same in C, where it is compiled and knows the field."""
        network, gates, candidate = Network.of(self.field), self.update.gates, self.update.candidate
        plain = type(self.update) is GatedUpdate and type(gates) is type(candidate) is nn.Linear
        plain = plain and gates.bias is candidate.bias is None and unhooked(self.update, gates, candidate)
        if network is None or not plain or type(self.flow) is not Flow or gaps.requires_grad:
            return None
        weights = (gates.weight, candidate.weight, *network.weights, *network.biases)
        if not usable(x, *weights) or not network.sizes[0] == network.sizes[-1] == len(candidate.weight):
            return None
        inputs = self.update.from_input(x)
        # autocast may have made it something else
        if not usable(inputs):
            return None
        return flowing_gru(inputs, gates.weight, candidate.weight, network, self.flow.plan(gaps))

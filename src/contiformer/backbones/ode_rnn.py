"""ODE-RNN: the state follows a differential equation between rows, and a GRU updates it at them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.recurrence import GatedUpdate, Rows, check_sizes, state_after
from contiformer.data.batch import Batch
from contiformer.native.flow import Network, Steps, flowing_gru
from contiformer.native.guard import unhooked, usable
from contiformer.nn.dropout import Dropout

Solver = Literal["euler", "midpoint", "rk4"]
Field = Callable[[Tensor], Tensor]


class ODERNN(Backbone):
    """Rubanova et al., "Latent ODEs for Irregularly-Sampled Time Series" (NeurIPS 2019), algorithm 1.

    ``h'_i = ODESolve(f, h_{i-1}, t_i - t_{i-1})``, ``h_i = GRU([x_i, m_i], h'_i)``, with f a network of ``tanh`` layers
    that does not see the time, and m_i the marks of what is observed. The state at a query after row i is
    ``ODESolve(f, h_i, t - t_i)``.

    Args:
        input_size: channels C.
        d_model: width of the state.
        n_layers: ODE-RNNs on top of each other; a further one takes the states of the one before as its input.
        dropout: of the states of every layer.
        units, depth: width and number of the hidden layers of f; the authors' code has 100 and 2.
        solver: "rk4", "midpoint", or "euler", the authors' own.
        step: the longest step; an interval is cut into equal ones, of its own number in every series.
        max_steps: steps in one interval at most: longer intervals have longer steps.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Deviations: the GRU is the standard one of algorithm 1, while the authors' code has gates with a hidden layer and
    carries a second, "standard deviation" half of the state; it solves with Euler steps of a 50th of the series
    (``solver="euler", step=0.02``). It solves one set of times for a whole batch; here every series has its own.
    States at queries are not in the authors' code. Before the first row the state is zero and does not move.

    The solver is not torchdiffeq's, which is as fast but takes the same number of steps for a whole batch: how exactly
    a series is solved would depend on its batch mates, or a long gap would get no more steps than a short one.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> ODERNN(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "Rubanova et al., Latent ODEs for Irregularly-Sampled Time Series, NeurIPS 2019"

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
    ) -> None:
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        self.d_model = d_model
        self.capabilities = Capabilities(causal=True)
        self.flow = Flow(solver, step, max_steps)
        self.layers = nn.ModuleList(
            FlowingGRU(
                2 * input_size if layer == 0 else d_model, d_model, tanh_network(d_model, units, depth), self.flow
            )
            for layer in range(n_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        dtype = next(self.parameters()).dtype
        rows = Rows.of(batch, dtype)
        gaps = rows.gaps
        x = torch.cat([rows.values, rows.observed.to(dtype)], dim=-1)
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
        """States after each row."""
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
        """The same in C, where that was compiled and knows the field."""
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


class Flow:
    """Solves ``dh/dt = f(h)`` by fixed steps, each element of a batch over its own duration in its own number of them.

    An element that has arrived takes steps of length 0 until the others have, so no element depends on another.
    """

    def __init__(self, solver: Solver = "rk4", step: float = 0.1, max_steps: int = 20) -> None:
        if solver not in get_args(Solver):
            raise ValueError(f"solver must be one of {', '.join(get_args(Solver))}, got {solver!r}")
        if not step > 0 or max_steps < 1:
            raise ValueError(f"step and max_steps must be positive, got {step} and {max_steps}: use 0.1 and 20")
        self.solver, self.step, self.max_steps = solver, step, max_steps

    def __call__(
        self, field: Field, state: Float[Tensor, "batch query d"], durations: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query d"]:
        """The states after their durations."""
        for duration in self.steps(durations.unsqueeze(0), state.dtype)[0]:
            state = self.advance(field, state, duration)
        return state

    def steps(self, durations: Float[Tensor, "rows batch *more"], dtype: torch.dtype) -> list[list[Tensor]]:
        """For each row the lengths of its steps, each [batch, *more, 1]; none where all durations are 0."""
        count, length = self._divide(durations)
        most = count.flatten(1).amax(1).tolist() if count.numel() else [0] * len(count)
        first = length.unsqueeze(-1).to(dtype).unbind(0)
        return [
            [one if k == 0 else torch.where(k < n.unsqueeze(-1), one, 0.0) for k in range(int(top))]
            for one, n, top in zip(first, count.unbind(0), most, strict=True)
        ]

    def plan(self, durations: Float[Tensor, "batch rows"]) -> Steps:
        """The same for the kernel: how many steps, and how long."""
        count, length = self._divide(durations)
        if count.isnan().any():
            raise ValueError("times of rows and queries must be numbers, got nan")
        return Steps(count.long(), length, self.solver)

    def _divide(self, durations: Tensor) -> tuple[Tensor, Tensor]:
        """Number and length of the steps."""
        # a duration of 3 steps is 3 steps, however it was rounded
        count = (durations / self.step - 1e-6).ceil().clamp(1, self.max_steps) * (durations > 0)
        return count, durations / count.clamp(min=1)

    def advance(self, field: Field, h: Tensor, step: Tensor) -> Tensor:
        """One step."""
        slope = field(h)
        if self.solver == "euler":
            return torch.addcmul(h, step, slope)
        if self.solver == "midpoint":
            return torch.addcmul(h, step, field(torch.addcmul(h, step, slope, value=0.5)))
        second = field(torch.addcmul(h, step, slope, value=0.5))
        third = field(torch.addcmul(h, step, second, value=0.5))
        fourth = field(torch.addcmul(h, step, third))
        return torch.addcmul(h, step, slope + fourth + 2 * (second + third), value=1 / 6)


def tanh_network(width: int, units: int, depth: int) -> nn.Sequential:
    """``width -> units -> ... -> width`` with ``depth`` hidden layers, begun as in the authors' code."""
    if units < 1 or depth < 0:
        raise ValueError(f"units must be positive and depth not negative, got {units} and {depth}: use 100 and 2")
    sizes = [width, *[units] * depth, width]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        linear = nn.Linear(before, after)
        nn.init.normal_(linear.weight, std=0.1)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])

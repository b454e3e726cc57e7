"""CADN: an ODE-RNN that attends to all of its own past, in continuous time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States, check_positive
from contiformer.backbones.flow import Flow, tanh_network
from contiformer.backbones.recurrence import GatedUpdate, Rows, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout
from contiformer.paths.runge_kutta import runge_kutta_step

#: Rows or queries that attend together: fewer need more steps, more need more memory.
_BLOCK = 64


class CADN(Backbone):
    """Causal attentive differential network (Chien and Chen, "Learning Continuous-Time Dynamics With Attention", 2023).

    An ODE-RNN, ``dz/dt = f(z, t)`` and a GRU update at each row, whose state attends to where it was before:

    ``c(t) = ∫ φ(q(t))·φ(k(s)) v(s) ds / ∫ φ(q(t))·φ(k(s)) ds`` over ``s < t`` with ``φ = exp``, ``q = W_q z``, ``k =
    W_k z``, ``v = W_v z`` (each with a bias). Because φ(q(t)) can be taken out of the integrals, ``∫ φ(k)`` and ``∫ v
    φ(k)ᵀ`` are solved with z, and no query has to be known in advance, which is what makes it causal. The state is
    ``tanh(c(t)) + z(t)``.

    The first version is Att-NDE ("Continuous-Time Attention for Sequential Learning", AAAI 2021), not causal. The
    formulas are from the first author's code (``--catt-v2``).

    Args:
        units, depth: width and number of the hidden layers of f.
        lead: the time before the first row at which everything begins with zeros, as in that code.
        step, max_steps: the longest step of the solver (classical Runge-Kutta), and steps between two rows at most.

    Deviations: the code integrates the numerator C and denominator A of c by their own derivatives, which do not know
    that the query jumps at rows, and then divides ``∫ φ(k)`` by C, it seems by a slip of an index; here c is what the
    formula says, with the state after the row as the query. The same Runge-Kutta steps give z and both integrals, but
    as sums over the stages of the steps (four in each), of which only those before a block of rows become a matrix.
    The GRU is the standard one; the code's has gates with a hidden layer and a second half of the state.
    """

    citation = "Chien and Chen, Continuous-Time Attention for Sequential Learning, AAAI 2021; TPAMI 2023"
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
        lead: float = 0.01,
        step: float = 0.1,
        max_steps: int = 20,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive("0.01", lead=lead)
        self.lead = lead
        self.flow = Flow("rk4", step, max_steps)
        self.layers = nn.ModuleList(
            AttentiveGRU(2 * input_size if layer == 0 else d_model, d_model, units, depth) for layer in range(n_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, next(self.parameters()).dtype)
        gaps = torch.cat([torch.full_like(rows.times[:, :1], self.lead), rows.gaps[:, 1:]], dim=1)
        x = rows.inputs
        layers = [cast(AttentiveGRU, layer) for layer in self.layers]
        for number, layer in enumerate(layers):
            past = layer.walk(self.dropout(x) if number else x, rows.times, gaps, self.flow)
            if query_times is None or layer is not layers[-1]:
                x = layer.at_rows(past)
        if query_times is None:
            return self.dropout(state_after(x, rows.passed))
        passed, elapsed = rows.until(query_times)
        asked = layers[-1].at_queries(past, passed, query_times.to(rows.times), elapsed, self.flow)
        return self.dropout(asked * (passed > 0).unsqueeze(-1))


@dataclass(frozen=True)
class Past:
    """The trajectory of the state.

    Attributes:
        states: z after each row.
        keys: φ(k) at the stages of the solver times their weights in the integral, over a factor that cancels.
        values: v at the stages, and a 1 that sums the weights.
        top: the logarithm of that factor.
        seen: how many stages lie before each row.
    """

    states: Float[Tensor, "batch rows d"]
    keys: Float[Tensor, "batch stages d"]
    values: Float[Tensor, "batch stages d+1"]
    top: Float[Tensor, " batch"]
    seen: list[int]


class AttentiveGRU(nn.Module):
    """One layer."""

    def __init__(self, input_size: int, d_model: int, units: int, depth: int) -> None:
        super().__init__()
        self.field = TimedField(d_model, units, depth)
        self.update = GatedUpdate(input_size, d_model)
        self.to_query, self.to_key, self.to_value = (nn.Linear(d_model, d_model) for _ in range(3))

    def walk(self, x: Float[Tensor, "batch rows input"], times: Tensor, gaps: Tensor, flow: Flow) -> Past:
        """The ODE-RNN over all rows."""
        z = x.new_zeros(x.shape[0], self.to_key.in_features)
        begun = (times - gaps).to(x.dtype).unsqueeze(-1).unbind(1)
        states: list[Tensor] = []
        stages: list[Tensor] = []
        weights: list[Tensor] = []
        seen = []
        for t, steps, row in zip(begun, flow.steps(gaps.T, x.dtype), self.update.inputs(x), strict=True):
            z = self.update(self._flow(z, t, steps, stages, weights), row)
            states.append(z)
            seen.append(len(stages))
        where = torch.stack(stages, dim=1)
        top = self.to_key(where).detach().flatten(1).amax(1)
        keys, values = self._keys_and_values(where, torch.cat(weights, dim=-1), top)
        return Past(torch.stack(states, dim=1), keys, values, top, seen)

    def at_rows(self, past: Past) -> Float[Tensor, "batch rows d"]:
        """``tanh(c) + z`` after each row. The sums over all stages before a block of rows are carried on."""
        query = self._query(past.states)
        seen = torch.tensor(past.seen, device=query.device)
        before, begun, sums = query.new_zeros(len(query), query.shape[-1], past.values.shape[-1]), 0, []
        for block, counts in zip(query.split(_BLOCK, dim=1), seen.split(_BLOCK), strict=True):
            end = int(counts[-1])
            keys, values = past.keys[:, begun:end], past.values[:, begun:end]
            visible = torch.arange(begun, end, device=query.device) < counts.unsqueeze(-1)
            sums.append(block @ before + (block @ keys.mT * visible) @ values)
            before, begun = before + keys.mT @ values, end
        return _attended(past.states, torch.cat(sums, dim=1))

    def at_queries(self, past: Past, passed: Tensor, times: Tensor, elapsed: Tensor, flow: Flow) -> Tensor:
        """The same at times after the last of so many rows."""
        z = state_after(past.states, passed)
        t = (times - elapsed).to(z.dtype).unsqueeze(-1)
        stages: list[Tensor] = []
        weights: list[Tensor] = []
        z = self._flow(z, t, flow.steps(elapsed.unsqueeze(0), z.dtype)[0], stages, weights)
        query = self._query(z)
        stage = torch.arange(past.keys.shape[1], device=z.device)
        counts = torch.tensor([0, *past.seen], device=z.device)[passed.clamp(min=1)].unsqueeze(-1)
        blocks = zip(query.split(_BLOCK, dim=1), counts.split(_BLOCK, dim=1), strict=True)
        sums = torch.cat([(block @ past.keys.mT * (stage < count)) @ past.values for block, count in blocks], dim=1)
        if stages:
            keys, values = self._keys_and_values(torch.stack(stages, dim=2), torch.cat(weights, dim=-1), past.top)
            sums = sums + ((query.unsqueeze(-2) @ keys.mT) @ values).squeeze(-2)
        return _attended(z, sums)

    def _keys_and_values(self, z: Tensor, weights: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
        """φ(k) times the weights, and v with a 1 behind it."""
        keys = (self.to_key(z) - top.view(-1, *[1] * (z.dim() - 1))).exp() * weights.unsqueeze(-1)
        return keys, nn.functional.pad(self.to_value(z), (0, 1), value=1.0)

    def _query(self, z: Tensor) -> Tensor:
        q = self.to_query(z)
        return (q - q.detach().amax(-1, keepdim=True)).exp()

    def _flow(self, z: Tensor, t: Tensor, steps: list[Tensor], stages: list[Tensor], weights: list[Tensor]) -> Tensor:
        """The state after the steps; the states at their stages, and the weights of these, are added to the lists."""
        for step in steps:

            def slope(x: Tensor, share: float, t: Tensor = t, step: Tensor = step) -> Tensor:
                stages.append(x)
                return self.field(x, t + share * step)

            z, t = runge_kutta_step(slope, z, step), t + step
            weights += [step / 6, step / 3, step / 3, step / 6]
        return z


def _attended(z: Float[Tensor, "*shape d"], sums: Float[Tensor, "*shape d+1"]) -> Float[Tensor, "*shape d"]:
    """``tanh(c) + z`` from the numerator of c, and behind it the denominator."""
    return (sums[..., :-1] / sums[..., -1:].clamp(min=torch.finfo(z.dtype).tiny)).tanh() + z


class TimedField(nn.Module):
    """``f(z, t)``: tanh layers on the state and the time, begun as in the authors' code."""

    def __init__(self, width: int, units: int, depth: int) -> None:
        super().__init__()
        self.network = tanh_network(width, units, depth, with_time=True)

    def forward(self, z: Float[Tensor, "*shape d"], t: Float[Tensor, "*shape 1"]) -> Float[Tensor, "*shape d"]:
        return self.network(torch.cat([z, t], dim=-1))

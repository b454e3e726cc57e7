"""A GRU whose state follows a differential equation between rows, in C: a layer in one call, and back in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.dispatch import unhooked
from contiformer.native.library import LANES, share_out, threads_for
from contiformer.native.sources import Struct, struct_of

#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**18
#: How far each stage reaches along the slope of the one before, and what each slope counts for in the step.
_TABLEAUX = {
    "euler": ((0.0,), (1.0,)),
    "midpoint": ((0.0, 1 / 2), (0.0, 1.0)),
    "rk4": ((0.0, 1 / 2, 1 / 2, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


@dataclass(frozen=True)
class Steps:
    """Evolution of each sequence before each of its rows: in ``count`` steps of this length, by this solver."""

    count: Int[Tensor, "batch rows"]
    length: Float[Tensor, "batch rows"]
    solver: str


@dataclass(frozen=True)
class Network:
    """Linear layers with ``tanh`` between them: weights [out, in] and biases [out]."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Network | None:
        """The network that a module is, or None if it is anything else."""
        layers = list(module) if type(module) is nn.Sequential else [module]
        kinds = [nn.Tanh if n % 2 else nn.Linear for n in range(len(layers))]
        # a subclass may do more than the layer does
        if len(layers) % 2 == 0 or [type(layer) for layer in layers] != kinds or not unhooked(module, *layers):
            return None
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        if any(layer.bias is None for layer in linear):
            return None
        return cls(tuple(layer.weight for layer in linear), tuple(layer.bias for layer in linear))

    @property
    def sizes(self) -> list[int]:
        """Numbers before, between and behind the layers."""
        return [self.weights[0].shape[1], *(len(weight) for weight in self.weights)]

    def packed(self) -> Float[Tensor, " numbers"]:
        """The layers one after the other."""
        layers = zip(self.weights, self.biases, strict=True)
        return torch.cat([packed_layer(weight.T, bias).flatten() for weight, bias in layers])


def packed_layer(weight: Float[Tensor, "*many into out"], bias: Float[Tensor, "*many out"]) -> Tensor:
    """[*many, in + 1, out] with the bias as the last row, in whole vectors."""
    into, out = weight.shape[-2:]
    wide = F.pad(weight, (0, -out % LANES, 0, -into % LANES))
    return torch.cat([wide, F.pad(bias, (0, -out % LANES)).unsqueeze(-2)], dim=-2)


def flowing_gru(
    inputs: Float[Tensor, "batch rows three_d"],
    gates: Float[Tensor, "two_d d"],
    candidate: Float[Tensor, "d d"],
    network: Network,
    steps: Steps,
) -> Float[Tensor, "batch rows d"]:
    """States after each row, from zero: see ``contiformer.backbones.ode_rnn.FlowingGRU``.

    Args:
        inputs: what the gates z and r and the candidate get from the rows.
        gates, candidate: the weights of the state in them.
        network: the field f of ``dh/dt = f(h)``.
        steps: how the state moves before each row.
    """
    d = len(candidate)
    more = -d % LANES
    wide = F.pad(inputs.unflatten(-1, (3, d)), (0, more)).flatten(-2)
    # rows of numbers that enter, columns of those that come out, as a sum over the first reads them
    both = F.pad(gates.view(2, d, d).permute(2, 0, 1), (0, more, 0, 0, 0, more)).flatten(1)
    one = F.pad(candidate.T, (0, more, 0, more))
    states = _FlowingGRU.apply(wide, both, one, network.packed(), tuple(network.sizes), steps)
    return states[..., :d]


@dataclass(frozen=True)
class _Problem:
    """All but the learned part, in the tensors that the kernel reads."""

    sizes: Tensor
    count: Tensor
    length: Tensor
    #: where the states of a row begin in the path, and how many states it has
    place: Tensor
    total: int
    solver: str

    @classmethod
    def of(cls, steps: Steps, sizes: Sequence[int]) -> _Problem:
        count = steps.count.to(torch.int64).contiguous()
        end = (count + 1).flatten().cumsum(0)
        place = end.view_as(count) - (count + 1)
        total = int(end[-1]) if len(end) else 0
        length = steps.length.to(torch.float32).contiguous()
        return cls(torch.tensor(sizes, device="cpu"), count, length, place, total, steps.solver)

    def described(self, **tensors: Tensor | None) -> Struct:
        """The struct for these tensors, which must outlive it."""
        reach, share = _TABLEAUX[self.solver]
        struct = struct_of("rivals/ode_rnn.c", "Flow")(self.count.shape[1], len(self.sizes) - 1, len(reach))
        struct.reach[: len(reach)], struct.share[: len(share)] = reach, share
        struct.point_to(sizes=self.sizes, count=self.count, place=self.place, length=self.length, **tensors)
        return struct

    def threads(self, field: Tensor) -> int:
        stages = len(_TABLEAUX[self.solver][0])
        return min(max(1, len(self.count)), threads_for(self.total * stages * len(field), _WORK_PER_THREAD))

    def layers(self, field: Tensor) -> list[Tensor]:
        """The weights [in, out] in the packed field."""
        found, begin = [], 0
        widths = [-(-size // LANES) * LANES for size in self.sizes.tolist()]
        for into, out in pairwise(widths):
            found.append(field[begin : begin + into * out].view(into, out))
            begin += (into + 1) * out
        return found


class _FlowingGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        gates: Tensor,
        candidate: Tensor,
        field: Tensor,
        sizes: tuple[int, ...],
        steps: Steps,
    ) -> Tensor:
        problem = _Problem.of(steps, sizes)
        given = [x.contiguous() for x in (inputs, gates, candidate, field)]
        batch, rows, width = *inputs.shape[:2], len(candidate)
        states = inputs.new_empty(batch, rows, width)
        keep = any(ctx.needs_input_grad)
        path = inputs.new_empty(problem.total, width) if keep else None
        kept = inputs.new_empty(batch, rows, 3 * width) if keep else None
        named = dict(zip(("input", "gates", "candidate", "field"), given, strict=True))
        struct = problem.described(**named, states=states, path=path, kept=kept)
        share_out("flow_forward", [struct] * problem.threads(field), batch)
        ctx.problem = problem
        ctx.save_for_backward(*given[1:], path, kept)
        return states

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_states: Tensor) -> tuple[Tensor | None, ...]:
        gates, candidate, field, path, kept = saved(ctx)
        problem, g_states = ctx.problem, g_states.contiguous()
        width, threads = len(candidate), problem.threads(field)
        g_input = torch.empty_like(kept)
        # every thread sums the gradients of the field for itself
        g_field = field.new_zeros(threads, len(field))
        field_back = torch.cat([layer.T.flatten() for layer in problem.layers(field)])
        named = {"field": field, "field_back": field_back, "path": path, "kept": kept, "g_states": g_states}
        named |= {"gates_back": gates.T.contiguous(), "candidate_back": candidate.T.contiguous(), "g_input": g_input}
        structs = [problem.described(**named, g_field=part) for part in g_field]
        share_out("flow_backward", structs, len(kept))
        # what the GRU adds to its arguments is linear in its weights, so one product makes their gradients of all rows
        g = g_input.view(-1, 3 * width)
        h = path[(problem.place + problem.count).flatten()]
        reset = kept.view(-1, 3 * width)[:, width : 2 * width]
        return g_input, h.T @ g[:, : 2 * width], (reset * h).T @ g[:, 2 * width :], g_field.sum(0), None, None

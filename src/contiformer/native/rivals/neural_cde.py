"""A state driven by a path, ``dz = f(z) dX``, in C: all steps in one call, and back in another."""

from __future__ import annotations

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
from contiformer.native.rivals.ode_rnn import packed_layer
from contiformer.native.sources import Struct, struct_of

_STAGES = 4
#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**18


@dataclass(frozen=True)
class MatrixNetwork:
    """Linear layers with ReLU between them and tanh behind the last, which makes a matrix [d, channels] of z [d].

    Weights are [out, in] and biases [out], those of the last layer with ``out = d channels``, channel after channel for
    each number of the state.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    channels: int

    @classmethod
    def of(cls, module: nn.Module, channels: int) -> MatrixNetwork | None:
        """The network that a module is, or None if it is anything else."""
        layers = list(module) if type(module) is nn.Sequential else []
        kinds = [nn.ReLU if n % 2 else nn.Linear for n in range(len(layers) - 1)]
        # a subclass may do more than the layer does
        if not layers or [type(layer) for layer in layers] != [*kinds, nn.Tanh] or not unhooked(module, *layers):
            return None
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        if len(layers) != 2 * len(linear) or any(layer.bias is None for layer in linear):
            return None
        if linear[-1].out_features != linear[0].in_features * channels:
            return None
        return cls(tuple(layer.weight for layer in linear), tuple(layer.bias for layer in linear), channels)

    @property
    def sizes(self) -> list[int]:
        """Numbers before, between and behind the layers; behind the last those of one channel."""
        return [*(weight.shape[1] for weight in self.weights), self.weights[0].shape[1]]

    def packed(self) -> Float[Tensor, " numbers"]:
        """The layers one after the other; the last is a layer for each channel."""
        layers = zip(self.weights[:-1], self.biases[:-1], strict=True)
        parts = [packed_layer(weight.T, bias).flatten() for weight, bias in layers]
        weight = self.weights[-1].unflatten(0, (-1, self.channels)).permute(1, 2, 0)
        bias = self.biases[-1].unflatten(0, (-1, self.channels)).T
        return torch.cat([*parts, packed_layer(weight, bias).flatten()])


def driven(
    start: Float[Tensor, "batch d"],
    pieces: Float[Tensor, "batch steps three channels"],
    count: Int[Tensor, " batch"],
    network: MatrixNetwork,
) -> Float[Tensor, "batch states d"]:
    """States before the first and after each step: see ``contiformer.backbones.neural_cde.NeuralCDE``.

    Args:
        start: the first state.
        pieces: slopes times the length of each step, at its start, middle and end.
        count: how many of the steps each sequence takes; behind them its state stays.
        network: f of ``dz = f(z) dX``.
    """
    d = start.shape[1]
    wide = F.pad(start, (0, -d % LANES))
    states = _Driven.apply(wide, pieces, network.packed(), count, tuple(network.sizes), network.channels)
    return states[..., :d]


@dataclass(frozen=True)
class _Problem:
    """All but what has gradients, in the tensors that the kernel reads."""

    steps: int
    channels: int
    sizes: Tensor
    count: Tensor

    def described(self, **tensors: Tensor | None) -> Struct:
        """The struct for these tensors, which must outlive it."""
        struct = struct_of("rivals/neural_cde.c", "Drive")(self.steps, self.channels, len(self.sizes) - 1)
        struct.point_to(sizes=self.sizes, count=self.count, **tensors)
        return struct

    def threads(self, field: Tensor) -> int:
        work = int(self.count.sum()) * _STAGES * len(field)
        return min(max(1, len(self.count)), threads_for(work, _WORK_PER_THREAD))

    def transposed(self, field: Tensor) -> Tensor:
        """The weights of the packed field, each [out, in] and without biases."""
        found, begin = [], 0
        widths = [-(-size // LANES) * LANES for size in self.sizes.tolist()]
        for number, (into, out) in enumerate(pairwise(widths)):
            many = self.channels if number == len(widths) - 2 else 1
            end = begin + many * (into + 1) * out
            found.append(field[begin:end].view(many, into + 1, out)[:, :into].transpose(1, 2).flatten())
            begin = end
        return torch.cat(found)


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, start: Tensor, pieces: Tensor, field: Tensor, count: Tensor, sizes: tuple[int, ...], channels: int
    ) -> Tensor:
        batch, steps, width = *pieces.shape[:2], start.shape[1]
        problem = _Problem(steps, channels, torch.tensor(sizes, device="cpu"), count.to(torch.int64).contiguous())
        pieces, field = pieces.contiguous(), field.contiguous()
        path = start.new_empty(batch, steps + 1, width)
        path[:, 0] = start
        kept = start.new_empty(batch, steps, _STAGES, width) if any(ctx.needs_input_grad) else None
        struct = problem.described(pieces=pieces, field=field, path=path, kept=kept)
        share_out("drive_forward", [struct] * problem.threads(field), batch)
        ctx.problem = problem
        ctx.save_for_backward(pieces, field, kept)
        return path

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_path: Tensor) -> tuple[Tensor | None, ...]:
        pieces, field, kept = saved(ctx)
        problem, g_path = ctx.problem, g_path.contiguous()
        g_start = torch.empty_like(g_path[:, 0])
        g_pieces = torch.zeros_like(pieces) if ctx.needs_input_grad[1] else None
        # every thread sums the gradients of the field for itself
        g_field = field.new_zeros(problem.threads(field), len(field))
        named = {"pieces": pieces, "field": field, "field_back": problem.transposed(field), "kept": kept}
        named |= {"g_path": g_path, "g_start": g_start, "g_pieces": g_pieces}
        structs = [problem.described(**named, g_field=part) for part in g_field]
        share_out("drive_backward", structs, len(pieces))
        return g_start, g_pieces, g_field.sum(0), None, None, None

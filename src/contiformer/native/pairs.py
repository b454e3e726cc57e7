"""Trajectories of many pairs in C, each from its own time to its own time, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.library import LANES, share_out, threads_for
from contiformer.native.sources import Struct, struct_of

#: Fewer steps than this are not worth a second thread.
_STEPS_PER_THREAD = 256
_LEARNED = ("matrix", "slope", "bias", "gain", "shift")


@dataclass(frozen=True)
class _Problem:
    """Everything but the learned part: the times of the pairs, how many steps each takes, and the field's constants."""

    begin: Tensor
    end: Tensor
    steps: int
    constants: tuple[float | None, float, float]

    def described(self, states: Tensor, learned: list[Tensor | None], **tensors: Tensor | None) -> Struct:
        """The struct for these tensors, which must outlive it."""
        floor, amplitude, offset = self.constants
        constants = (-1.0 if floor is None else floor, amplitude, offset)
        struct = struct_of("pairs.c", "Pairs")(states.shape[1], self.steps, *constants)
        named = dict(zip(_LEARNED, learned, strict=True)) | {"from": self.begin, "to": self.end}
        struct.point_to(states=states, **named, **tensors)
        return struct

    def threads(self) -> int:
        """How many are worth it."""
        return max(1, min(len(self.begin), threads_for(len(self.begin) * self.steps, _STEPS_PER_THREAD)))


def fits(states: Tensor) -> bool:
    """Whether the width is a whole number of vectors."""
    return states.shape[-1] % LANES == 0


def solve(
    states: Float[Tensor, "pairs d"],
    begin: Float[Tensor, " pairs"],
    end: Float[Tensor, " pairs"],
    steps: int,
    parameters: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    constants: tuple[float | None, float, float],
) -> Float[Tensor, "pairs d"]:
    """Where each state is at its end after so many Runge-Kutta steps, see ``contiformer.nn.pairwise``.

    Args:
        states: at the beginning.
        begin, end: times of each pair.
        steps: of equal length, the same number for all pairs.
        parameters: matrix, slope, bias, gain and shift of one field, see ``contiformer.nn.fused_sweep``.
        constants: its floor, amplitude and offset.
    """
    # the kernel reads doubles
    problem = _Problem(begin.double().contiguous(), end.double().contiguous(), steps, constants)
    return _Solve.apply(problem, states, *parameters)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: _Problem, states: Tensor, *parameters: Tensor | None) -> Tensor:
        first, learned = states.contiguous(), [None if x is None else x.contiguous() for x in parameters]
        ends = torch.empty_like(first)
        share_out("pairs_forward", [problem.described(first, learned, ends=ends)] * problem.threads(), len(first))
        ctx.problem = problem
        ctx.save_for_backward(first, *learned)
        return ends

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_ends: Tensor) -> tuple[Tensor | None, ...]:
        states, *learned = saved(ctx)
        problem, g_ends = ctx.problem, g_ends.contiguous()
        threads = problem.threads()
        # every thread sums the gradients of the parameters for itself
        sums = [None if x is None else x.new_zeros(threads, *x.shape) for x in learned]
        named = {"g_ends": g_ends, "g_states": torch.empty_like(states), "transposed": learned[0].mT.contiguous()}
        works = []
        for n in range(threads):
            own = {f"g_{k}": None if x is None else x[n] for k, x in zip(_LEARNED, sums, strict=True)}
            works.append(problem.described(states, learned, **named, **own))
        share_out("pairs_backward", works, len(states))
        return None, named["g_states"], *(None if total is None else total.sum(0) for total in sums)

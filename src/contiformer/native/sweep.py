"""The two Runge-Kutta sweeps in C, from the values at the observations to the series."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.library import LANES, made_for, share_out, threads_for
from contiformer.native.sources import Struct, struct_of
from contiformer.paths.trajectories import Pieces, node_times, substeps_for

#: Fewer rows than this are not worth a second thread.
_ROWS_PER_THREAD = 64


@dataclass(frozen=True)
class _Problem:
    """Everything but the learned part: times [N, B], grid [G, B], half lengths [B, P], and the options.

    ``items`` are the trajectories to be solved, sequence by sequence of each state; None: all.
    """

    times: Tensor
    grid: Tensor
    half: Tensor
    basis: Tensor
    heads: int
    nodes: int
    causal: bool
    constants: tuple[float | None, float, float]
    items: Tensor | None

    def described(self, given: list[Tensor | None], values: Tensor) -> Struct:
        """The struct for these tensors, which must outlive it."""
        initial, matrix, slope, bias, gain, shift = given
        assert initial is not None
        floor, amplitude, offset = self.constants
        struct = struct_of("sweep.c", "Sweep")(
            *initial.shape, self.heads, len(self.grid), substeps_for(self.nodes), self.nodes - 1
        )
        struct.causal = int(self.causal)
        struct.each = self.rows(initial) // max(1, initial.shape[0])
        struct.floor, struct.amplitude, struct.offset = -1.0 if floor is None else floor, amplitude, offset
        struct.point_to(times=self.times, grid=self.grid, half=self.half, basis=self.basis, values=values)
        struct.point_to(items=self.items)
        struct.point_to(initial=initial, matrix=matrix, slope=slope, bias=bias, gain=gain, shift=shift)
        return struct

    def rows(self, initial: Tensor) -> int:
        """How many trajectories are solved."""
        return initial[..., 0].numel() if self.items is None else len(self.items)

    def result(self, like: Tensor, *shape: int) -> Tensor:
        """What the kernel fills, with zeros where it does not."""
        return like.new_empty(shape) if self.items is None else like.new_zeros(shape)


def usable(initial: Tensor) -> bool:
    """Whether the kernel takes this tensor: its width has to be a whole number of vectors."""
    return initial.shape[-1] % LANES == 0 and made_for(initial)


def solve(
    initial: Tensor,
    times: Tensor,
    pieces: Pieces,
    basis: Tensor,
    causal: bool,
    heads: int,
    parameters: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    constants: tuple[float | None, float, float],
    valid: Tensor | None = None,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Series [B, H, N, P, M, dk] of each state, and the squares that ``Trajectories`` keeps of them.

    Where ``valid`` [N, B] is false, both are zero.
    """
    if initial.shape[-1] % heads:
        raise ValueError(f"a width of {initial.shape[-1]} cannot be divided among {heads} heads")
    nodes = basis.shape[0] // 2
    clock = (times, node_times(pieces, nodes).T, pieces.half_lengths)
    # the kernel reads doubles
    when, grid, half = (part.to(torch.float64).contiguous() for part in clock)
    problem = _Problem(
        when, grid, half, basis.contiguous(), heads, nodes, causal, constants, _items(valid, initial.shape[0])
    )
    *series, squares = _NativeSweep.apply(initial, *parameters, problem)
    return tuple(series), squares


class _NativeSweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        initial: Tensor,
        matrix: Tensor,
        slope: Tensor,
        bias: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        problem: _Problem,
    ) -> tuple[Tensor, ...]:
        given = [None if x is None else x.contiguous() for x in (initial, matrix, slope, bias, gain, shift)]
        states, obs, batch, width = initial.shape
        pieces, rows, heads = problem.half.shape[1], problem.rows(initial), problem.heads
        values = initial.new_empty(states * obs * batch, len(problem.grid), width)
        shape = (batch, heads, obs, pieces, 2 * problem.nodes, width // heads)
        series = [problem.result(initial, *shape) for _ in range(states)]
        squares = problem.result(initial, 2, states, obs, batch, pieces)
        struct = problem.described(given, values)
        where = _addresses(series)
        struct.series = ctypes.addressof(where)
        struct.point_to(squares=squares)
        if rows:
            share_out("sweep_forward", [struct] * threads_for(rows, _ROWS_PER_THREAD), rows)
        ctx.problem = problem
        ctx.save_for_backward(*given, values)
        ctx.mark_non_differentiable(squares)
        return (*series, squares)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, values = saved(ctx)
        initial, matrix = given[:2]
        rows = ctx.problem.rows(initial)
        g_series = [g.contiguous() for g in gradients[:-1]]
        where = _addresses(g_series)
        g_initial = ctx.problem.result(initial, *initial.shape)
        transposed = matrix.mT.contiguous()
        share = threads_for(rows, _ROWS_PER_THREAD)
        # every thread sums the gradients of the parameters for itself
        sums = [None if x is None else x.new_zeros(share, *x.shape) for x in given[1:]]
        sweeps = []
        for n in range(share):
            struct = ctx.problem.described(given, values)
            struct.g_series = ctypes.addressof(where)
            struct.point_to(transposed=transposed, g_initial=g_initial)
            names = ("g_matrix", "g_slope", "g_bias", "g_gain", "g_shift")
            struct.point_to(**{k: None if x is None else x[n] for k, x in zip(names, sums, strict=True)})
            sweeps.append(struct)
        if rows:
            share_out("sweep_backward", sweeps, rows)
        return g_initial, *(None if total is None else total.sum(0) for total in sums), None


def _items(valid: Tensor | None, states: int) -> Tensor | None:
    """Numbers of the valid trajectories in the order of the kernel: state, sequence, observation."""
    if valid is None:
        return None
    of_one = torch.nonzero(valid.T.flatten()).squeeze(1)
    items = torch.cat([of_one + state * valid.numel() for state in range(states)])
    return items.to(torch.int64 if ctypes.sizeof(ctypes.c_long) == 8 else torch.int32)


def _addresses(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """An array of pointers; it and the tensors must outlive whoever reads it."""
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))

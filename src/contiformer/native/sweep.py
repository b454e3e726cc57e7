"""The two Runge-Kutta sweeps in C."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contiformer.native.library import share_out, threads_for
from contiformer.native.library import usable as kernels_usable
from contiformer.paths.trajectories import Pieces, node_times, substeps_for

_LANES = 8
#: Fewer rows than this are not worth a second thread.
_ROWS_PER_THREAD = 64


class _Sweep(ctypes.Structure):
    """The struct of sweep.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("states", "obs", "batch", "width", "nodes", "substeps", "per_piece")),
        ("causal", ctypes.c_int),
        *((name, ctypes.c_float) for name in ("floor", "amplitude", "offset")),
        *((name, ctypes.c_void_p) for name in ("times", "grid", "stretch", "initial", "matrix", "transposed")),
        *((name, ctypes.c_void_p) for name in ("slope", "bias", "gain", "shift", "data", "g_data")),
        *((name, ctypes.c_void_p) for name in ("g_initial", "g_matrix", "g_slope", "g_bias", "g_gain", "g_shift")),
    )


def usable(initial: Tensor) -> bool:
    """Whether the kernel takes this tensor: its width has to be a whole number of vectors."""
    return initial.shape[-1] % _LANES == 0 and kernels_usable(initial)


def sweep(
    initial: Tensor,
    times: Tensor,
    pieces: Pieces,
    nodes: int,
    causal: bool,
    parameters: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    constants: tuple[float | None, float, float],
) -> Tensor:
    """Values and x-derivatives [2, G, S, N, B, d] at the nodes, see ``contiformer.nn.fused_sweep``."""
    grid = node_times(pieces, nodes).T.contiguous()
    clock = (times.contiguous(), grid, pieces.half_lengths[:, 0].contiguous())
    return _NativeSweep.apply(initial, *parameters, clock, (nodes - 1, substeps_for(nodes), causal), constants)


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
        clock: tuple[Tensor, Tensor, Tensor],
        steps: tuple[int, int, bool],
        constants: tuple[float | None, float, float],
    ) -> Tensor:
        given = [None if x is None else x.contiguous() for x in (initial, matrix, slope, bias, gain, shift)]
        data = initial.new_empty(2, clock[1].shape[0], *initial.shape)
        ctx.clock, ctx.steps, ctx.constants = clock, steps, constants
        rows = initial[..., 0].numel()
        struct = _describe(given, clock, steps, constants, data)
        share_out("sweep_forward", [struct] * threads_for(rows, _ROWS_PER_THREAD), rows)
        ctx.save_for_backward(*given, data)
        return data

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_data: Tensor) -> tuple[Tensor | None, ...]:
        *given, data = ctx.saved_tensors
        initial, matrix = given[:2]
        rows = initial[..., 0].numel()
        g_data = g_data.contiguous()
        g_initial = torch.empty_like(initial)
        transposed = matrix.mT.contiguous()
        share = threads_for(rows, _ROWS_PER_THREAD)
        # every thread sums the gradients of the parameters for itself
        sums = [None if x is None else x.new_zeros(share, *x.shape) for x in given[1:]]
        sweeps = []
        for n in range(share):
            struct = _describe(given, ctx.clock, ctx.steps, ctx.constants, data)
            struct.transposed, struct.g_data, struct.g_initial = map(Tensor.data_ptr, (transposed, g_data, g_initial))
            for name, total in zip(("g_matrix", "g_slope", "g_bias", "g_gain", "g_shift"), sums, strict=True):
                setattr(struct, name, None if total is None else total[n].data_ptr())
            sweeps.append(struct)
        share_out("sweep_backward", sweeps, rows)
        return g_initial, *(None if total is None else total.sum(0) for total in sums), None, None, None


def _describe(
    given: list[Tensor | None],
    clock: tuple[Tensor, Tensor, Tensor],
    steps: tuple[int, int, bool],
    constants: tuple[float | None, float, float],
    data: Tensor,
) -> _Sweep:
    """The struct for these tensors, which must outlive it."""
    initial = given[0]
    assert initial is not None
    states, obs, batch, width = initial.shape
    per_piece, substeps, causal = steps
    floor, amplitude, offset = constants
    pointers = [None if x is None else x.data_ptr() for x in (*clock, *given[:2])]
    struct = _Sweep(states, obs, batch, width, clock[1].shape[0], substeps, per_piece, int(causal))
    struct.floor, struct.amplitude, struct.offset = -1.0 if floor is None else floor, amplitude, offset
    struct.times, struct.grid, struct.stretch, struct.initial, struct.matrix = pointers
    for name, x in zip(("slope", "bias", "gain", "shift"), given[2:], strict=True):
        setattr(struct, name, None if x is None else x.data_ptr())
    struct.data = data.data_ptr()
    return struct

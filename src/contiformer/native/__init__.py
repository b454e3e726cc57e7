"""The sweep in C, where the installation could compile it.

Nothing depends on it: :func:`usable` says whether it is there, and the passes in ``contiformer.nn.fused_sweep`` do
the same in PyTorch where it is not. Set ``CONTIFORMER_NATIVE=0`` to do without.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contiformer.paths.trajectories import Pieces, node_times, substeps_for

_ABI = 1
_LANES = 8
#: Fewer rows than this are not worth a second thread.
_ROWS_PER_THREAD = 64


class _Sweep(ctypes.Structure):
    """The struct of sweep.c."""

    _fields_ = (
        [(name, ctypes.c_long) for name in ("states", "obs", "batch", "width", "nodes", "substeps", "per_piece")]
        + [("causal", ctypes.c_int)]
        + [(name, ctypes.c_float) for name in ("floor", "amplitude", "offset")]
        + [(name, ctypes.c_void_p) for name in ("times", "grid", "stretch", "initial", "matrix", "transposed")]
        + [(name, ctypes.c_void_p) for name in ("slope", "bias", "gain", "shift", "data", "g_data")]
        + [(name, ctypes.c_void_p) for name in ("g_initial", "g_matrix", "g_slope", "g_bias", "g_gain", "g_shift")]
    )


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled library, or None."""
    if os.environ.get("CONTIFORMER_NATIVE", "1") == "0":
        return None
    for path in sorted(Path(__file__).parent.glob("_sweep*")):
        try:
            library = ctypes.CDLL(str(path))
            if library.sweep_abi() == _ABI:
                return library
        except (OSError, AttributeError):
            continue
    return None


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="contiformer-sweep")


def usable(initial: Tensor) -> bool:
    """Whether the compiled sweep is there and made for this tensor: float32 on the CPU, a width of whole vectors."""
    fits = initial.dtype == torch.float32 and initial.device.type == "cpu" and initial.shape[-1] % _LANES == 0
    return fits and _library() is not None


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


def _run(call: Callable[..., int], sweeps: list[_Sweep], rows: int) -> None:
    """Divide the rows among as many threads as there are structs."""
    share = -(-rows // len(sweeps))
    ranges = [(n * share, min((n + 1) * share, rows)) for n in range(len(sweeps))]
    arguments = [
        (ctypes.byref(s), ctypes.c_long(a), ctypes.c_long(b)) for s, (a, b) in zip(sweeps, ranges, strict=True)
    ]
    if len(sweeps) == 1:
        results = [call(*arguments[0])]
    else:
        others = [_threads(len(sweeps) - 1).submit(call, *some) for some in arguments[1:]]
        results = [call(*arguments[0]), *(other.result() for other in others)]
    if any(results):
        raise MemoryError("the compiled sweep could not get its working memory")


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
        library = _library()
        assert library is not None
        given = [None if x is None else x.contiguous() for x in (initial, matrix, slope, bias, gain, shift)]
        data = initial.new_empty(2, clock[1].shape[0], *initial.shape)
        ctx.clock, ctx.steps, ctx.constants = clock, steps, constants
        rows = initial[..., 0].numel()
        _run(library.sweep_forward, [_describe(given, clock, steps, constants, data)] * _share(rows), rows)
        ctx.save_for_backward(*given, data)
        return data

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_data: Tensor) -> tuple[Tensor | None, ...]:
        library = _library()
        assert library is not None
        *given, data = ctx.saved_tensors
        initial, matrix = given[:2]
        rows = initial[..., 0].numel()
        g_data = g_data.contiguous()
        g_initial = torch.empty_like(initial)
        transposed = matrix.mT.contiguous()
        share = _share(rows)
        # every thread sums the gradients of the parameters for itself
        sums = [None if x is None else x.new_zeros(share, *x.shape) for x in given[1:]]
        sweeps = []
        for n in range(share):
            struct = _describe(given, ctx.clock, ctx.steps, ctx.constants, data)
            struct.transposed, struct.g_data, struct.g_initial = map(Tensor.data_ptr, (transposed, g_data, g_initial))
            for name, total in zip(("g_matrix", "g_slope", "g_bias", "g_gain", "g_shift"), sums, strict=True):
                setattr(struct, name, None if total is None else total[n].data_ptr())
            sweeps.append(struct)
        _run(library.sweep_backward, sweeps, rows)
        return g_initial, *(None if total is None else total.sum(0) for total in sums), None, None, None


def _share(rows: int) -> int:
    return max(1, min(torch.get_num_threads(), rows // _ROWS_PER_THREAD))


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

"""The generalised spectral mixture kernel in C: all pairs of times in one pass, and back in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.library import LANES, share_out, threads_for
from contiformer.native.sources import struct_of

#: Fewer pairs than this are not worth a second thread.
_PAIRS_PER_THREAD = 2**13


def spectral_mixture(
    t: Float[Tensor, "batch times"],
    s: Float[Tensor, "batch others"],
    points: Float[Tensor, "batch 3 mixtures times"],
    other_points: Float[Tensor, "batch 3 mixtures others"],
) -> Float[Tensor, "batch times others"]:
    """``k(t, s) = Σ_i r_i r'_i (q_i + q'_i)^(-1/2) exp(-(t - s)² / (q_i + q'_i)) cos(p_i - p'_i)``.

    Args:
        t, s: times, without gradients.
        points, other_points: squares of lengths q, weights r and phases p at the times t, and at the times s.
    """
    more = -s.shape[1] % LANES
    return _SpectralMixture.apply(points, F.pad(other_points, (0, more)), t, F.pad(s, (0, more)), s.shape[1])


class _SpectralMixture(torch.autograd.Function):
    """Second times come in whole vectors, with zeros behind the last of them."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, other_points: Tensor, t: Tensor, s: Tensor, others: int) -> Tensor:
        given = [_in_the_plane(points), _in_the_plane(other_points), t.contiguous(), s.contiguous()]
        matrix = t.new_empty(*t.shape, others)
        _call("spectral_forward", given, matrix.shape, t.numel(), matrix=matrix)
        ctx.save_for_backward(*given, points[:, 1], other_points[:, 1])
        return matrix

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_matrix: Tensor) -> tuple[Tensor | None, ...]:
        *given, weight, other_weight = saved(ctx)
        g_matrix, g_points, g_others = g_matrix.contiguous(), *(torch.empty_like(x) for x in given[:2])
        gradients = {"g_points": g_points, "g_other_points": g_others, "g_matrix": g_matrix}
        _call("spectral_backward", given, g_matrix.shape, weight.shape[0] * weight.shape[1], **gradients)
        for gradient, scale in ((g_points, weight), (g_others, other_weight)):
            # the kernel's is that of the logarithm; of a weight that is zero, there is none
            gradient[:, 1] /= scale.clamp(min=torch.finfo(scale.dtype).tiny)
        return g_points, g_others, None, None, None


def _in_the_plane(points: Float[Tensor, "batch 3 mixtures times"]) -> Float[Tensor, "batch 3 mixtures times"]:
    """Weights and phases as points."""
    square, weight, phase = points.unbind(1)
    return torch.stack([square, weight * phase.cos(), weight * phase.sin()], dim=1)


def _call(name: str, given: Sequence[Tensor], shape: torch.Size, items: int, **tensors: Tensor) -> None:
    points, other_points, t, s = given
    mixtures, width = other_points.shape[2:]
    struct = struct_of("rivals/spectral_mixture.c", "Spectral")(mixtures, *shape[1:], width)
    struct.point_to(t=t, s=s, points=points, other_points=other_points, **tensors)
    threads = min(items, threads_for(mixtures * shape.numel(), _PAIRS_PER_THREAD))
    share_out(name, [struct] * threads, items)

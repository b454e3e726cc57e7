"""Attention from points in time to keys in C: from trajectories to mixed values in one call, and back in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.library import share_out, threads_for
from contiformer.native.sources import Struct, struct_of

#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**16
#: Random bits of a weight. The share that is dropped is rounded to a multiple of 2^-BITS.
BITS = 24


@dataclass(frozen=True)
class Places:
    """Which points the keys and the queries are at.

    Attributes:
        keys: their points, in order.
        asked: the points of the queries, in order.
        target: which query asks there.
    """

    keys: Int[Tensor, "batch keys"]
    asked: Int[Tensor, "batch rows"]
    target: Int[Tensor, "batch rows"]


@dataclass(frozen=True)
class Knots:
    """What is not learned: times and who is valid, the edges of the pieces, and the options. Times are in float64.

    Points do not decrease, and those of the keys increase; edges between pieces are points too. ``places`` is None
    where points, keys and queries are the same. ``nodes`` and ``shares`` are a rule on [0, 1] that is exact for the
    product of a series with the path.
    """

    time: Float[Tensor, "batch points"]
    edges: Float[Tensor, "batch edges"]
    valid: Bool[Tensor, "batch keys"] | None
    places: Places | None
    nodes: Float[Tensor, " nodes"]
    shares: Float[Tensor, " nodes"]
    scale: float
    causal: bool
    dropout: float
    seed: int
    keep_weights: bool

    def described(self, given: tuple[Tensor, ...], weights: Tensor | None) -> Struct:
        """The struct for these tensors, which must outlive it."""
        series, values, path, key = given
        _, heads, keys, pieces, terms, key_width = series.shape
        dropped = round(self.dropout * 2**BITS)
        sizes = (self.time.shape[1], keys, self.rows(keys), pieces, terms, path.shape[2], len(self.nodes), key_width)
        struct = struct_of("attention.c", "Knots")(heads, *sizes, values.shape[-1])
        struct.seed, struct.causal, struct.dropped = self.seed, int(self.causal), dropped
        struct.kept, struct.scale = 2**BITS / max(1, 2**BITS - dropped), self.scale
        struct.point_to(time=self.time, edges=self.edges, valid=self.valid, node=self.nodes, share=self.shares)
        struct.point_to(series=series, values=values, path=path, key=key, weights=weights)
        if self.places is not None:
            struct.point_to(place=self.places.keys, asked=self.places.asked, target=self.places.target)
        return struct

    def rows(self, keys: int) -> int:
        """How many queries there are."""
        return keys if self.places is None else self.places.asked.shape[1]


def attend_at_points(
    series: Float[Tensor, "batch heads keys pieces terms dk"],
    values: Float[Tensor, "batch heads keys pieces terms dv"],
    path: Float[Tensor, "batch points power heads dk"],
    key: Float[Tensor, "batch keys heads dk"],
    knots: Knots,
) -> Float[Tensor, "batch rows heads dv"]:
    """Softmax attention from every query to every key, see ``contiformer.nn.{cells,knot_attention,mixing}``.

    ``out_j = Σ_i weights_ji v̂_i(t_j)`` with v̂ the mean of the values between ``t_i`` and ``t_j``; the scores are the
    means of the path times the key series there, and at the key's own point the path's first coefficient times the key.
    """
    given = (part.contiguous() for part in (series, values, path, key))
    return _AttentionAtPoints.apply(*given, knots)


class _AttentionAtPoints(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, series: Tensor, values: Tensor, path: Tensor, key: Tensor, knots: Knots) -> Tensor:
        batch, heads, keys = series.shape[:3]
        given, rows = (series, values, path, key), knots.rows(keys)
        out = series.new_empty(batch, rows, heads, values.shape[-1])
        keep = knots.keep_weights and any(ctx.needs_input_grad)
        weights = series.new_empty(batch, heads, rows, keys) if keep else None
        struct = knots.described(given, weights)
        struct.point_to(out=out)
        _share_out("knots_forward", struct, series)
        ctx.knots = knots
        ctx.save_for_backward(*given, weights)
        return out

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        *given, weights = saved(ctx)
        gradients = [torch.empty_like(x) for x in given]
        g_out = g_out.contiguous()
        struct = ctx.knots.described(tuple(given), weights)
        struct.point_to(g_out=g_out)
        struct.point_to(**dict(zip(("g_series", "g_values", "g_path", "g_key"), gradients, strict=True)))
        _share_out("knots_backward", struct, given[0])
        return *gradients, None


def _share_out(name: str, struct: Struct, series: Tensor) -> None:
    batch, heads = series.shape[:2]
    threads = min(batch * heads, threads_for(series.numel() // struct.pieces * struct.points, _WORK_PER_THREAD))
    share_out(name, [struct] * max(1, threads), batch * heads)

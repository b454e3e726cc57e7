"""The usual cases of attention, short sequences with queries at the observations or anywhere, in one call.

:mod:`contiformer.nn.reference` does the same for everything else, and is what this is tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.native.attention import Knots, Places, attend_at_points
from contiformer.nn.rules import AttentionRule
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import Pieces

#: Numbers in a matrix with a row for each point: some twenty of them are a thread's working memory, and a few for each
#: sequence are the path's.
NUMBERS = 2**21
#: Longer sequences are not for this kernel.
ALONE = 256


@dataclass(frozen=True)
class Keys:
    """Keys and values at the observations' own times, and their series."""

    time: Float[Tensor, "batch keys"]
    valid: Bool[Tensor, "batch keys"] | None
    key: Float[Tensor, "batch heads keys dk"]
    value: Float[Tensor, "batch heads keys dv"]
    key_series: Float[Tensor, "batch heads keys pieces terms dk"]
    value_series: Float[Tensor, "batch heads keys pieces terms dv"]
    pieces: Pieces


def applies(
    path: PiecewisePolynomial,
    k: Tensor,
    times: Tensor,
    queries: Tensor | None,
    edges: Tensor,
    rule: AttentionRule,
    heads: int,
    terms: int = 64,
) -> bool:
    """Whether the kernel does this: exact means of both trajectories of not too many keys, in float32.

    The keys' times are the path's knots, and so are the queries if they are None. Elsewhere, and where there are
    several pieces, the future must be open.
    """
    both = rule.continuous_scores and rule.continuous_values and rule.rule == "exact" and rule.normalized
    if not both:
        return False
    length, count = times.shape[1], edges.shape[1] - 1
    if queries is not None or count > 1:
        points = length + (0 if queries is None else queries.shape[1]) + count - 1
        powers, width = path.coefficients.shape[2:]
        too_large = points * max(length, 8, terms * width // heads, terms * powers, powers * width) > NUMBERS
        if rule.causal or too_large:
            return False
    asked = queries is not None and queries.requires_grad
    return not asked and not times.requires_grad and length <= ALONE


def fused_attention(
    path: PiecewisePolynomial, keys: Keys, queries: Tensor | None, rule: AttentionRule, keep_weights: bool
) -> Float[Tensor, "batch heads query dv"]:
    """Attend from every query (None: every knot) to every key."""
    series, values = keys.key_series, keys.value_series
    heads, dk = series.shape[1], series.shape[-1]
    time, coefficients, places = keys.time.double(), path.coefficients, None
    if queries is not None or keys.pieces.count > 1:
        time, places = _merged(keys, queries)
        coefficients = path.refined(time).coefficients
    nodes, shares = (torch.from_numpy(part) for part in _quadrature(series.shape[4] + coefficients.shape[2] - 2))
    knots = Knots(
        time=time.contiguous(),
        edges=keys.pieces.edges.double().contiguous(),
        valid=None if keys.valid is None else keys.valid.contiguous(),
        places=places,
        nodes=nodes,
        shares=shares,
        scale=rule.scale(dk),
        causal=rule.causal,
        dropout=rule.dropout,
        seed=int(torch.randint(2**62, ())) if rule.dropout > 0 else 0,
        keep_weights=keep_weights,
    )
    out = attend_at_points(series, values, coefficients.unflatten(-1, (heads, dk)), keys.key.transpose(1, 2), knots)
    return out.transpose(1, 2)


def _merged(keys: Keys, queries: Tensor | None) -> tuple[Float[Tensor, "batch points"], Places]:
    """Keys, queries and edges between pieces in one list of points.

    A query at the time of a key asks at the key's own point, where the score is a product and no mean.
    """
    begun, length = keys.time.double(), keys.time.shape[1]
    asked = begun[:, :0] if queries is None else queries.double()
    time, order = torch.cat([begun, asked, keys.pieces.edges[:, 1:-1].double()], 1).sort(dim=1, stable=True)
    count = torch.arange(time.shape[1], device=time.device)
    point = torch.empty_like(order).scatter_(1, order, count.expand_as(order))
    key_points = point[:, :length].contiguous()
    if queries is None:
        same = torch.arange(length, device=time.device).repeat(len(time), 1)
        return time, Places(key_points, key_points, same)
    first = torch.searchsorted(begun.contiguous(), asked.contiguous()).clamp(max=length - 1)
    together = begun.gather(1, first) == asked
    places = torch.where(together, key_points.gather(1, first), point[:, length : length + asked.shape[1]])
    places, target = places.sort(dim=1, stable=True)
    return time, Places(key_points, places.contiguous(), target.contiguous())


@cache
def _quadrature(degree: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Gauss-Legendre on [0, 1], exact up to this degree. No tensors: those of a first call may be a tracer's."""
    nodes, weights = gauss_legendre(degree // 2 + 1)
    return np.ascontiguousarray(nodes, dtype=np.float64), np.ascontiguousarray(weights, dtype=np.float64)

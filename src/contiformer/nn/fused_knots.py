"""The usual case of attention, queries at the observations of a short sequence in one piece, in one compiled call.

:mod:`contiformer.nn.cells`, :mod:`contiformer.nn.knot_attention` and :mod:`contiformer.nn.mixing` do the same step by
step for everything else, and are what this is tested against.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.native import made_for
from contiformer.native.knots import Knots, attend_at_knots
from contiformer.nn.cells import ALONE
from contiformer.nn.keys import Keys
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import gauss_legendre
from contiformer.paths.interpolation import PiecewisePolynomial


def applies(path: PiecewisePolynomial, keys: Keys, rule: AttentionRule) -> bool:
    """Whether the kernel does this: exact means of both trajectories in one piece and one block, in float32.

    The queries are at the keys' times, which are the path's knots.
    """
    both = rule.continuous_scores and rule.continuous_values and rule.rule == "exact" and rule.normalized
    if not both or keys.key_series is None or keys.value_series is None or keys.pieces.count != 1:
        return False
    fixed = not (keys.time.requires_grad or keys.pieces.edges.requires_grad)
    learned = (keys.key_series, keys.value_series, keys.key, path.coefficients)
    return fixed and keys.time.shape[1] <= ALONE and all(map(made_for, learned))


def fused_attention(
    path: PiecewisePolynomial, keys: Keys, rule: AttentionRule, keep_weights: bool
) -> Float[Tensor, "batch heads keys dv"]:
    """Attend from every knot to every key."""
    series, values = keys.key_series, keys.value_series
    assert series is not None
    assert values is not None
    heads, dk = series.shape[1], series.shape[-1]
    nodes, shares = _quadrature(series.shape[4] + path.coefficients.shape[2] - 2)
    knots = Knots(
        time=keys.time.double().contiguous(),
        edges=keys.pieces.edges.double().contiguous(),
        valid=None if keys.valid is None else keys.valid.contiguous(),
        nodes=nodes,
        shares=shares,
        scale=rule.scale(dk),
        causal=rule.causal,
        dropout=rule.dropout,
        seed=int(torch.randint(2**62, ())) if rule.dropout > 0 else 0,
        keep_weights=keep_weights,
    )
    by_head = path.coefficients.unflatten(-1, (heads, dk))
    out = attend_at_knots(series.squeeze(3), values.squeeze(3), by_head, keys.key.transpose(1, 2), knots)
    return out.transpose(1, 2)


@cache
def _quadrature(degree: int) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Gauss-Legendre on [0, 1], exact up to this degree."""
    nodes, weights = gauss_legendre(degree // 2 + 1)
    return torch.as_tensor(nodes, device="cpu").contiguous(), torch.as_tensor(weights, device="cpu").contiguous()

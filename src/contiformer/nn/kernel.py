"""The compiled attention: what it takes, and how it is called."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.native import sweep
from contiformer.native.dispatch import usable
from contiformer.nn import fused_knots
from contiformer.nn.fields import SigmoidField
from contiformer.nn.fused_knots import Keys
from contiformer.nn.heads import join_heads, split_heads
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import hermite_to_chebyshev
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.tables import table
from contiformer.paths.trajectories import Pieces, StackedField, tail_of

#: Weights beyond this many are recomputed in the backward pass instead of kept.
KEEP_WEIGHTS = 2**25


def takes(
    path: PiecewisePolynomial,
    k: Float[Tensor, "batch keys d"],
    v: Float[Tensor, "batch keys d"],
    times: Float[Tensor, "batch keys"],
    valid: Bool[Tensor, "batch keys"] | None,
    query_times: Float[Tensor, "batch query"] | None,
    edges: Float[Tensor, "batch edges"],
    field: StackedField,
    rule: AttentionRule,
    heads: int,
) -> bool:
    """Whether the kernel does what :func:`contiformer.nn.reference.attend` does with these arguments."""
    if not isinstance(field, SigmoidField) or not usable(k, v, path.coefficients) or not sweep.usable(k):
        return False
    if field.matrix.shape[-1] != k.shape[-1]:
        return False
    return fused_knots.applies(path, k, times, query_times, edges, rule, heads)


def attend(
    path: PiecewisePolynomial,
    k: Float[Tensor, "batch keys d"],
    v: Float[Tensor, "batch keys d"],
    times: Float[Tensor, "batch keys"],
    valid: Bool[Tensor, "batch keys"] | None,
    query_times: Float[Tensor, "batch query"] | None,
    edges: Float[Tensor, "batch edges"],
    field: StackedField,
    rule: AttentionRule,
    heads: int,
    nodes: int,
) -> tuple[Float[Tensor, "batch query d"], Float[Tensor, " batch"]]:
    """Output and tail of :func:`contiformer.nn.reference.attend`, of distinct times."""
    assert isinstance(field, SigmoidField)
    pieces = Pieces(edges)
    initial = torch.stack([k, v]).transpose(1, 2).contiguous()
    matrix = table(hermite_to_chebyshev, nodes, k)
    shown = None if valid is None else valid.T
    series, squares = sweep.solve(
        initial, times.T, pieces, matrix, rule.causal, heads, field.parameters, field.constants, shown
    )
    used = torch.ones_like(times, dtype=torch.bool).unsqueeze(-1) if valid is None else valid.unsqueeze(-1)
    if rule.causal:
        used = used & (edges[:, None, 1:] > times.unsqueeze(-1))
    start = torch.stack([k, v]).detach().square().sum(-1, keepdim=True).expand(-1, -1, -1, pieces.count)
    sizes = (torch.cat([squares.transpose(2, 3), start[None]]) * used).sum(3)
    key_series, value_series = series
    keys = Keys(times, valid, split_heads(k, heads), split_heads(v, heads), key_series, value_series, pieces)
    queries = times if query_times is None else query_times
    keep = queries.shape[0] * heads * queries.shape[1] * times.shape[1] <= KEEP_WEIGHTS
    return join_heads(fused_knots.fused_attention(path, keys, query_times, rule, keep)), tail_of(sizes)

"""Queries and keys of :mod:`contiformer.nn.reference`, and the paper's quadrature rules between a key and a query.

The rules are ablations: "linear" takes the mean of the two end points, "gauss" Gauss-Legendre points ``τ_g`` between
them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contiformer.nn.heads import split_heads
from contiformer.nn.rules import AttentionRule
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.tables import table
from contiformer.paths.trajectories import Pieces, evaluate_basis


class Queries(NamedTuple):
    """The query path at the query times and, for exact scores, integrated against the basis of the trajectories."""

    time: Float[Tensor, "batch query"]
    knot: Int[Tensor, "batch query"] | None  # the last knot at or before each query, -1 before the first
    value: Float[Tensor, "batch heads query dk"]
    cells: Float[Tensor, "batch heads knots pmd"] | None  # integrals of T_m q from each knot to the next
    parts: tuple[
        Float[Tensor, "batch heads query pmd"], ...
    ]  # means from the knot before to the query, and to the next


class Keys(NamedTuple):
    """Some of the keys, from number ``first`` on, their series where the rule makes them continuous, and the gaps."""

    first: int
    time: Float[Tensor, "batch keys"]
    key: Float[Tensor, "batch keys d"]
    value: Float[Tensor, "batch keys d"]
    key_series: Float[Tensor, "batch keys pieces terms d"] | None
    value_series: Float[Tensor, "batch keys pieces terms d"] | None
    gap: Float[Tensor, "batch query keys"]  # u - t_i


def mix(
    weights: Float[Tensor, "batch heads query keys"],
    basis: Float[Tensor, "batch query slots"],
    series: Float[Tensor, "batch keys slots d"],
    heads: int,
) -> Float[Tensor, "batch heads query dk"]:
    """``Σ_i weights_i Σ_s basis_s series_{i,s}``: the weighted sum of the series of all keys, at the queries."""
    columns = series.unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4)
    mixed = (weights @ columns.flatten(3)).unflatten(-1, columns.shape[3:])
    return (basis[:, None, :, None, :] @ mixed).squeeze(3)


def pair_scores(
    queries: Queries,
    keys: Keys,
    path: PiecewisePolynomial,
    flat: Float[Tensor, "batch heads keys pmd"],
    own: Float[Tensor, "batch heads 1 keys"],
    pieces: Pieces,
    rule: AttentionRule,
    heads: int,
) -> Float[Tensor, "batch heads query keys"]:
    """``(q(t_i)·K_i + q(u)·k_i(u)) / 2``, or ``Σ_g w_g q(τ_g)·k_i(τ_g)``."""
    series, gap = keys.key_series, keys.gap
    assert series is not None
    dtype, terms = series.dtype, series.shape[3]
    if rule.rule == "linear":
        basis = evaluate_basis(pieces, queries.time, terms).flatten(2).to(dtype)
        here = (basis[:, None, ..., None] * queries.value.unsqueeze(3)).flatten(3)
        return (own + here @ flat.mT) / 2
    curves = series.flatten(2, 3).unflatten(-1, (heads, -1))
    total = torch.zeros_like(gap, dtype=dtype).unsqueeze(1)
    for node, weight in table(gauss_legendre, rule.points, gap).unbind(1):
        tau = read = keys.time[:, None, :] + gap * node
        if rule.causal and queries.knot is not None:
            # the path is held from the last knot on
            read = torch.minimum(tau, path.knots.gather(1, queries.knot.clamp(min=0)).unsqueeze(-1))
        query = path(read.flatten(1)).unflatten(1, tau.shape[1:]).unflatten(-1, (heads, -1))
        curve = torch.einsum("bqnm,bnmhd->bqnhd", evaluate_basis(pieces, tau, terms).flatten(3).to(dtype), curves)
        total = total + weight.to(dtype) * (query * curve).sum(-1).permute(0, 3, 1, 2)
    return total


def pair_values(
    weights: Float[Tensor, "batch heads query keys"],
    queries: Queries,
    keys: Keys,
    pieces: Pieces,
    rule: AttentionRule,
    heads: int,
) -> Float[Tensor, "batch heads query dk"]:
    """``Σ_i weights_i (V_i + v_i(u)) / 2``, or ``Σ_i weights_i Σ_g w_g v_i(τ_g)``."""
    series, time, gap = keys.value_series, keys.time, keys.gap
    assert series is not None
    dtype, terms, flat = weights.dtype, series.shape[3], series.flatten(2, 3)
    if rule.rule == "linear":
        basis = evaluate_basis(pieces, queries.time, terms).flatten(2).to(dtype)
        return (mix(weights, basis, flat, heads) + weights @ split_heads(keys.value, heads)) / 2
    nodes = table(gauss_legendre, rule.points, gap).unbind(1)
    between = [w * evaluate_basis(pieces, time[:, None, :] + gap * x, terms).flatten(3) for x, w in nodes]
    curves = flat.unflatten(-1, (heads, -1))
    return torch.einsum("bhqn,bqnm,bnmhd->bhqd", weights, torch.stack(between).sum(0).to(dtype), curves)

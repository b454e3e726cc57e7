"""The paper's algorithm, as plain as its equations: one pair of ODEs for every key and every query time.

Each interval ``[t_i, u_j]`` is mapped to ``s`` in [-1, 1] by ``τ = (s (u_j - t_i) + t_i + u_j) / 2``, so that
``dk/ds = f(τ, k) (u_j - t_i) / 2``, and all N x Q systems are solved at once with Runge-Kutta steps of a fixed size.
This is the oracle of the tests and the baseline of the benchmark; use ``method="spectral"`` for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout

from contiformer.nn.observations import Observations
from contiformer.nn.rules import AttentionRule
from contiformer.paths.interpolation import PiecewisePolynomial


def pairwise_attention(
    path: PiecewisePolynomial,
    key: Float[Tensor, "batch obs d"],
    value: Float[Tensor, "batch obs d"],
    seen: Observations,
    key_field: nn.Module,
    value_field: nn.Module,
    rule: AttentionRule,
    heads: int,
    step_size: float,
) -> tuple[Float[Tensor, "batch heads query dv"], Float[Tensor, "batch heads query obs"]]:
    """Attention from the query path at the query times (or the times) to the observations."""
    start = seen.times[:, None, :]
    queries = seen.times if seen.query_times is None else seen.query_times
    end = queries[:, :, None]
    start, end = torch.broadcast_tensors(start, end)
    gap = end - start
    known = seen.last_known(queries)[0].unsqueeze(-1) if rule.causal else None

    def query_at(tau: Tensor) -> Tensor:
        # what a causal model may not know yet is held at its last known value
        read = tau if known is None else torch.minimum(tau, known)
        return path(read.flatten(1)).unflatten(1, tau.shape[1:])

    def heads_of(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1))

    def product(tau: Tensor, k: Tensor) -> Tensor:
        return (heads_of(query_at(tau)) * heads_of(k)).sum(-1)

    allowed = seen.valid[:, None, :].expand_as(gap)
    if rule.causal:
        allowed = allowed & (gap >= 0)
    keys = key[:, None].expand(-1, end.shape[1], -1, -1)
    values = value[:, None].expand_as(keys)
    if rule.continuous_scores:
        scores = _mean_along(key_field, keys, start, end, step_size, rule, product)
        if not rule.normalize_scores:
            scores = scores * gap.unsqueeze(-1).to(scores.dtype)
    else:
        scores = product(end, keys)
    if rule.continuous_values:
        values = _mean_along(value_field, values, start, end, step_size, rule, lambda _, v: v)
        if not rule.normalize_values:
            values = values * gap.unsqueeze(-1).to(values.dtype)
    scores = scores.permute(0, 3, 1, 2) * rule.scale(key.shape[-1] // heads)
    allowed = allowed.unsqueeze(1)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1) * allowed
    out = torch.einsum("bhqn,bqnhd->bhqd", dropout(weights, rule.dropout), heads_of(values))
    return out, weights


def _mean_along(
    field: nn.Module,
    state: Tensor,
    start: Tensor,
    end: Tensor,
    step_size: float,
    rule: AttentionRule,
    of: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Mean over [start, end] of ``of(τ, x(τ))`` along the trajectory of ``state``, by the rule.

    "exact" carries the running integral as one more state of the ODE,
    so it converges as the step goes to zero.
    """
    half = ((end - start) / 2).to(state.dtype).unsqueeze(-1)

    def time(s: float) -> Tensor:
        return (s * (end - start) + start + end) / 2

    def slope(s: float, x: Tensor) -> Tensor:
        return field(time(s).to(x.dtype).unsqueeze(-1), x) * half

    if rule.rule == "linear":
        return (of(start, state) + of(end, _solve(slope, state, -1.0, 1.0, step_size))) / 2
    if rule.rule == "gauss":
        nodes, weights = np.polynomial.legendre.leggauss(rule.points)
        total = torch.zeros_like(of(start, state))
        at = -1.0
        for node, weight in zip(nodes, weights, strict=True):
            state, at = _solve(slope, state, at, float(node), step_size), float(node)
            total = total + float(weight) / 2 * of(time(at), state)
        return total
    width = state.shape[-1]

    def with_integral(s: float, both: Tensor) -> Tensor:
        x = both[..., :width]
        return torch.cat([slope(s, x), of(time(s), x) / 2], dim=-1)

    empty = torch.zeros_like(of(start, state))
    return _solve(with_integral, torch.cat([state, empty], dim=-1), -1.0, 1.0, step_size)[..., width:]


def _solve(slope: Callable[[float, Tensor], Tensor], x: Tensor, start: float, end: float, step_size: float) -> Tensor:
    """Classical Runge-Kutta from ``start`` to ``end`` in equal steps of at most ``step_size``."""
    steps = max(1, math.ceil((end - start) / step_size - 1e-9))
    h = (end - start) / steps
    for n in range(steps):
        s = start + n * h
        k1 = slope(s, x)
        k2 = slope(s + h / 2, x + h / 2 * k1)
        k3 = slope(s + h / 2, x + h / 2 * k2)
        k4 = slope(s + h, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x

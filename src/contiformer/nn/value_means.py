"""Weighted sums of the values, and the points between pairs that the Gauss-Legendre rule needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from contiformer.native.dispatch import usable
from contiformer.native.gauss_rule import MOST_POINTS, MOST_TERMS, Times, scores_between, values_between
from contiformer.native.small_matmul import small_products
from contiformer.nn.attention_inputs import Keys, Rows
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import running_mean_matrix
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import evaluate_basis


def points_between(rows: Rows, path: PiecewisePolynomial, keys: Keys, rule: AttentionRule) -> Pairs | CompiledPairs:
    """Gauss-Legendre points between every row and key, see :class:`Pairs`."""
    learned = [path.coefficients, *(x for x in (keys.key_series, keys.value_series) if x is not None)]
    times = (rows.time, rows.known, keys.time, path.knots, keys.pieces.edges)
    kept = not any(time.requires_grad for time in times) and min(x.numel() for x in (*learned, *times)) > 0
    fits = learned[-1].shape[-2] <= MOST_TERMS and rule.points <= MOST_POINTS
    if kept and fits and usable(*learned):
        return CompiledPairs.of(rows, path, keys, rule)
    return Pairs.of(rows, path, keys, rule)


@dataclass(frozen=True)
class CompiledPairs:
    """:class:`Pairs` in C, where times are not learned."""

    path: PiecewisePolynomial
    times: Times

    @classmethod
    def of(cls, rows: Rows, path: PiecewisePolynomial, keys: Keys, rule: AttentionRule) -> CompiledPairs:
        """All times in double precision."""
        node, share = map(torch.from_numpy, gauss_legendre(rule.points))
        given = (rows.time, rows.known, keys.time, path.knots, keys.pieces.edges)
        row, known, key, knot, edge = (time.double().contiguous() for time in given)
        return cls(path, Times(row, known, key, knot, edge, node, share, rule.causal))

    def scores(self, keys: Keys) -> Tensor:
        """``Σ_p w_p q(τ_p)·k_i(τ_p)``."""
        assert keys.key_series is not None
        return scores_between(self.path.coefficients, keys.key_series, self.times)

    def values(self, weights: Tensor, keys: Keys) -> Tensor:
        """``Σ_i weights_i Σ_p w_p v_i(τ_p)``."""
        assert keys.value_series is not None
        return values_between(weights, keys.value_series, self.times)


@dataclass(frozen=True)
class Pairs:
    """Gauss-Legendre points between every row and key: what the paper calls the rule with P points."""

    query: list[Tensor]
    basis: list[Tensor]
    weights: list[float]

    @classmethod
    def of(cls, rows: Rows, path: PiecewisePolynomial, keys: Keys, rule: AttentionRule) -> Pairs:
        """The query path and the trajectories' basis at the points of every pair."""
        nodes, weights = gauss_legendre(rule.points)
        some = keys.key_series if keys.key_series is not None else keys.value_series
        assert some is not None
        query, basis = [], []
        for node in nodes:
            start = keys.time[:, None, :]
            tau = start + (rows.time[..., None] - start) * float(node)
            read = torch.minimum(tau, rows.known[..., None]) if rule.causal else tau
            query.append(path(read.flatten(1)).unflatten(1, tau.shape[1:]))
            basis.append(evaluate_basis(keys.pieces, tau, some.shape[-2]).flatten(3).to(some.dtype))
        return cls(query, basis, [float(w) for w in weights])

    def scores(self, keys: Keys) -> Tensor:
        """``Σ_p w_p q(τ_p)·k_i(τ_p)``."""
        assert keys.key_series is not None
        heads = keys.key.shape[1]
        series = keys.key_series.flatten(3, 4)
        total: Tensor | float = 0.0
        for query, basis, weight in zip(self.query, self.basis, self.weights, strict=True):
            curve = torch.einsum("brnm,bhnmd->bhrnd", basis, series)
            total = total + weight * torch.einsum("bhrnd,brnhd->bhrn", curve, query.unflatten(-1, (heads, -1)))
        assert isinstance(total, Tensor)
        return total

    def values(self, weights: Tensor, keys: Keys) -> Tensor:
        """``Σ_i weights_i Σ_p w_p v_i(τ_p)``."""
        assert keys.value_series is not None
        basis = sum(weight * basis for basis, weight in zip(self.basis, self.weights, strict=True))
        assert isinstance(basis, Tensor)
        curve = torch.einsum("brnm,bhnmd->bhrnd", basis, keys.value_series.flatten(3, 4))
        return (weights.unsqueeze(-2) @ curve).squeeze(-2)


@dataclass(frozen=True)
class Mixer:
    """Weighted sums of the values' means: ``Σ_i weights_i v̂_i(u)``.

    On the piece of ``u`` the mean from the key, or from the piece's edge that is nearer to it, is a series in ``u``
    (``means`` [B, H, L, P, M dv]); what lies beyond that edge is ``carry`` [B, H, L, P dv].
    """

    means: Tensor | None
    carry: Tensor | None

    @classmethod
    def of(cls, keys: Keys, rule: AttentionRule) -> Mixer:
        """Everything about the values that does not depend on the query time."""
        series = keys.value_series
        if not rule.continuous_values or series is None or rule.rule == "gauss":
            return cls(None, None)
        if rule.rule == "linear":
            return cls(series.flatten(3), None)
        low, high = keys.pieces.edges[:, None, :-1], keys.pieces.edges[:, None, 1:]
        nearest = keys.time[..., None].clamp(low, high)
        index = torch.arange(keys.pieces.count, device=nearest.device).expand_as(nearest)
        to_mean = running_mean_matrix(keys.pieces.local(nearest, index), series.shape[4]).to(series.dtype)
        means = small_products(to_mean.flatten(1, 2), series.flatten(2, 3)).unflatten(2, series.shape[2:4])
        if keys.pieces.count == 1:
            return cls(means.flatten(3), None)
        sign = torch.ones(means.shape[4], dtype=means.dtype, device=means.device)
        sign[1::2] = -1
        to_right = means.sum(4) * (high - nearest).to(means.dtype)[:, None, ..., None]
        to_left = (means * sign[:, None]).sum(4) * (nearest - low).to(means.dtype)[:, None, ..., None]
        before = torch.ones(keys.pieces.count, keys.pieces.count, dtype=means.dtype, device=means.device).triu(1)
        carry = before.T @ to_right
        if not rule.causal:
            carry = carry + before @ to_left
        return cls(means.flatten(3), carry.flatten(3))

    def read(self, mixed: Tensor, time: Tensor, keys: Keys) -> Float[Tensor, "batch heads rows dv"]:
        """Evaluate the mixed series [B, H, R, P M dv] of each row at its own time."""
        if self.means is None or keys.value_series is None:
            return mixed
        basis = evaluate_basis(keys.pieces, time, keys.value_series.shape[-2]).flatten(2).to(mixed.dtype)
        series = mixed.unflatten(-1, (-1, keys.value.shape[-1]))
        return small_products(basis.unsqueeze(2), series).squeeze(-2)

    def __call__(
        self,
        weights: Tensor,
        rows: Rows,
        keys: Keys,
        pair: Pairs | CompiledPairs | None,
        gap: Tensor,
        rule: AttentionRule,
    ) -> Float[Tensor, "batch heads rows dv"]:
        """``Σ_i weights_i v̂_i(u)`` for each row."""
        dtype, width = weights.dtype, keys.value.shape[-1]
        if rule.continuous_values and not rule.normalize_values and self.carry is None:
            weights = weights * gap.to(dtype).unsqueeze(1)
        if pair is not None and rule.continuous_values:
            return pair.values(weights, keys)
        if self.means is None:
            return weights @ keys.value
        inner = weights
        if self.carry is not None:
            piece = keys.pieces.locate(rows.time)
            low, high = keys.pieces.edges.gather(1, piece), keys.pieces.edges.gather(1, piece + 1)
            nearest = keys.time[:, None, :].clamp(low[..., None], high[..., None])
            together = gap == 0
            factor = gap.abs().where(~together, 1.0).reciprocal() if rule.normalize_values else gap.sign()
            share = (rows.time[..., None] - nearest).abs() * factor
            if rule.normalize_values:
                share = share.where(~together, 1.0)
            inner = weights * share.to(dtype).unsqueeze(1)
        out = self.read(inner @ self.means, rows.time, keys)
        if self.carry is not None:
            beyond = ((weights * factor.to(dtype).unsqueeze(1)) @ self.carry).unflatten(-1, (-1, width))
            out = out + torch.einsum("bhrpd,brp->bhrd", beyond, one_hot(piece, keys.pieces.count).to(dtype))
        if rule.rule == "linear":
            out = (out + weights @ keys.value) / 2
        return out

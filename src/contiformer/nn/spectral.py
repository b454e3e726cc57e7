"""Continuous-time attention from one trajectory per observation and matrix products.

For key ``i`` and query time ``u`` the score is the mean of ``q·k_i`` over ``[t_i, u]`` and the value the mean of ``v_i``.
With ``k_i = Σ_m c_{i,m} T_m`` the integral over a cell between two neighbouring points is ``c_i · μ_cell``, a product of
the coefficients with the moments of the query path. Cells are summed *outward from the key*, never as a difference
of two prefix sums, so close times lose nothing:

- points are cut into blocks of consecutive points. Between a key and a query of one block, the cells' contributions are
  summed by a triangular product (:class:`_CellSums`);
- between blocks the integral is the key's carry up to the near edge of the query's block, plus ``c_i`` times the moments
  from that edge to the query, which is one product for all keys on that side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import dropout, one_hot, pad
from torch.utils.checkpoint import checkpoint

from contiformer.nn.knot_attention import KnotProblem, knot_attention
from contiformer.nn.observations import last_observed
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import gauss_legendre, running_mean_matrix
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.moments import held_moments, interval_moments
from contiformer.paths.trajectories import Pieces, evaluate_basis

BLOCK = 64
ROWS = 128
#: Weights beyond this many are recomputed in the backward pass instead of kept.
KEEP_WEIGHTS = 2**25


@dataclass(frozen=True)
class Keys:
    """The keys and values that queries attend to, in the order of their times.

    Shapes: time [B, L]; valid [B, L], None if all are; key, value [B, H, L, dk] at the observation's own time;
    key_series, value_series [B, H, L, P, M, dk], None where the discrete ones are used.
    """

    time: Float[Tensor, "batch keys"]
    valid: Bool[Tensor, "batch keys"] | None
    key: Float[Tensor, "batch heads keys dk"]
    value: Float[Tensor, "batch heads keys dv"]
    key_series: Float[Tensor, "batch heads keys pieces terms dk"] | None
    value_series: Float[Tensor, "batch heads keys pieces terms dv"] | None
    pieces: Pieces

    def rearranged(self, index: Int[Tensor, "batch points"], time: Tensor, valid: Tensor) -> Keys:
        """The same keys at the given positions."""

        def pick(x: Tensor | None) -> Tensor:
            assert x is not None
            shape = (-1, x.shape[1], -1, *x.shape[3:])
            return x.gather(2, index.view(index.shape[0], 1, -1, *([1] * (x.dim() - 3))).expand(shape))

        return replace(
            self,
            time=time,
            valid=valid,
            key=pick(self.key),
            value=pick(self.value),
            key_series=None if self.key_series is None else pick(self.key_series),
            value_series=None if self.value_series is None else pick(self.value_series),
        )


@dataclass(frozen=True)
class Rows:
    """Some of the query times of every sequence.

    Shapes: time [B, R]; query [B, H, R, dk], the query path there; known [B, R], the last time up to which the path
    may be read (its own time, but in a causal model the last observation's); block: which block of points they lie in;
    left [B, R]: the point before them, counted from the block's start.
    """

    time: Float[Tensor, "batch rows"]
    query: Float[Tensor, "batch heads rows dk"]
    known: Float[Tensor, "batch rows"]
    block: int = 0
    left: Int[Tensor, "batch rows"] | None = None


def split_heads(x: Float[Tensor, "batch n d"], heads: int) -> Float[Tensor, "batch heads n dk"]:
    """[B, n, H dk] -> [B, H, n, dk]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def spectral_attention(
    path: PiecewisePolynomial,
    keys: Keys,
    query_times: Float[Tensor, "batch query"] | None,
    rule: AttentionRule,
    *,
    distinct: bool,
    return_weights: bool = False,
) -> tuple[Float[Tensor, "batch heads query dv"], Float[Tensor, "batch heads query keys"] | None]:
    """Attend from the query path at ``query_times`` (None: at the keys' own times) to the keys.

    ``distinct`` promises that the keys' times strictly increase (over the valid ones) and are the path's knots.
    """
    batch, heads, length, _ = keys.key.shape
    queries = keys.time if query_times is None else query_times
    summed = rule.continuous_scores and rule.rule == "exact"
    keep_weights = batch * heads * queries.shape[1] * length <= KEEP_WEIGHTS
    order = back = None
    if query_times is None and distinct and keys.pieces.count == 1:
        sums = _CellSums.at_knots(path, keys) if summed else None
        if sums is not None and rule.normalized and not return_weights and not torch.compiler.is_compiling():
            return _attend_at_knots(path, keys, sums, rule, keep_weights), None
        chunks: Iterator[Rows] = _chunks_at_knots(path, keys, sums, heads)
    else:
        if summed:
            keys, order = _with_edges(keys, length)
        sums = _CellSums.between_points(path, keys) if summed else None
        chunks, back = _chunks_anywhere(path, keys, sums, queries, heads, rule.causal)
    mixer = _Mixer.of(keys, rule)
    outputs, weights = [], []
    for rows in chunks:
        arguments = (rows, path, keys, sums, mixer, rule, return_weights)
        if keep_weights or not torch.is_grad_enabled():
            out, weight = _attend_rows(*arguments)
        else:
            out, weight = checkpoint(_attend_rows, *arguments, use_reentrant=False)
        outputs.append(out)
        weights.append(weight)
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    weight = torch.cat(weights, dim=2) if return_weights else None
    if back is not None:
        output = output.gather(2, back[:, None, :, None].expand(-1, heads, -1, output.shape[-1]))
        if weight is not None:
            weight = weight.gather(2, back[:, None, :, None].expand(-1, heads, -1, weight.shape[-1]))
    if order is not None and weight is not None:
        weight = weight.gather(3, order[:, None, None, :].expand(*weight.shape[:3], -1))
    return output, weight


def _attend_at_knots(
    path: PiecewisePolynomial, keys: Keys, sums: _CellSums, rule: AttentionRule, keep_weights: bool
) -> Float[Tensor, "batch heads keys dv"]:
    """The usual case, queries at the observations in one piece, where blocks of rows and of keys are the same."""
    batch, heads, length, dk = keys.key.shape
    mixer = _Mixer.of(keys, rule)
    own = (split_heads(path.coefficients[:, :, 0], heads) * keys.key).sum(-1)
    blocks, size = sums.within.shape[2:4]
    own = pad(own, (0, blocks * size - length)).unflatten(2, (blocks, size))
    within = sums.within[..., :size] + torch.diag_embed(own)
    none = keys.key.new_zeros(batch, heads, blocks, 0)
    left = none if sums.left is None else sums.left.mT.contiguous()
    right = none if sums.right is None else sums.right.mT.contiguous()
    values = keys.value if mixer.means is None else mixer.means
    seed = int(torch.randint(2**31, ())) if rule.dropout > 0 else 0
    problem = KnotProblem(
        keys.time, keys.valid, sums.size, rule.scale(dk), rule.causal, rule.dropout, seed, keep_weights
    )
    parts = (sums.series, sums.before, sums.after[..., :size, :], within, left, right, values)
    mixed = knot_attention(*(part.flatten(0, 1) for part in parts), problem, heads).unflatten(0, (batch, heads))
    return mixer.read(mixed, keys.time, keys)


def _attend_rows(
    rows: Rows,
    path: PiecewisePolynomial,
    keys: Keys,
    sums: _CellSums | None,
    mixer: _Mixer,
    rule: AttentionRule,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Scores, softmax and weighted values of some rows."""
    gap = rows.time[:, :, None] - keys.time[:, None, :]
    pair = _Pairs.of(rows, path, keys, rule) if rule.rule == "gauss" and rule.continuous else None
    scores = _scores(rows, path, keys, sums, pair, gap, rule) * rule.scale(keys.key.shape[-1])
    allowed = None if keys.valid is None else keys.valid[:, None, :].expand_as(gap)
    if rule.causal:
        allowed = gap >= 0 if allowed is None else allowed & (gap >= 0)
    if allowed is not None:
        allowed = allowed.unsqueeze(1)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if allowed is not None:
        # a row that may attend to nothing gets weights of zero, not a uniform share of what it must not see
        weights = weights * allowed
    dropped = dropout(weights, rule.dropout) if rule.dropout > 0 else weights
    return mixer(dropped, rows, keys, pair, gap, rule), weights if return_weights else None


def _scores(
    rows: Rows,
    path: PiecewisePolynomial,
    keys: Keys,
    sums: _CellSums | None,
    pair: _Pairs | None,
    gap: Tensor,
    rule: AttentionRule,
) -> Float[Tensor, "batch heads rows keys"]:
    """``α_i(u)`` before the scaling by ``1/√d``."""
    if not rule.continuous_scores or keys.key_series is None:
        return rows.query @ keys.key.mT
    dtype = keys.key.dtype
    if sums is not None:
        integral = sums.integrals(rows, keys)
        if not rule.normalize_scores:
            return integral * gap.sign().to(dtype).unsqueeze(1)
        together = gap == 0
        factor = gap.abs().where(~together, 1.0).reciprocal().to(dtype).unsqueeze(1)
        return torch.where(together.unsqueeze(1), rows.query @ keys.key.mT, integral * factor)
    if pair is not None:
        mean = pair.scores(keys)
    else:
        own = split_heads(path(keys.time), keys.key.shape[1])
        basis = evaluate_basis(keys.pieces, rows.time, keys.key_series.shape[-2]).flatten(2).to(dtype)
        spread = torch.einsum("brm,bhrd->bhrmd", basis, rows.query).flatten(3)
        here = spread @ keys.key_series.flatten(3).mT
        mean = ((own * keys.key).sum(-1).unsqueeze(2) + here) / 2
    return mean if rule.normalize_scores else mean * gap.to(dtype).unsqueeze(1)


@dataclass(frozen=True)
class _CellSums:
    """Everything about ``∫ q·k_i`` that does not depend on the query time.

    Shapes, with nb blocks of b points: series, before, after [B, H, nb, b (+1), P M dk]; within [B, H, nb, b, b + 1],
    the integral between key i and point m of the same block; left, right [B, H, L, nb], the carry of key i to the left
    and right edge of another block.
    """

    size: int
    time: Float[Tensor, "batch points"]
    piece: Int[Tensor, "batch points"]
    series: Float[Tensor, "batch heads points pmd"]
    width: int
    within: Float[Tensor, "batch heads blocks b c"]
    before: Float[Tensor, "batch heads blocks b pmd"]
    after: Float[Tensor, "batch heads blocks c pmd"]
    left: Float[Tensor, "batch heads points blocks"] | None
    right: Float[Tensor, "batch heads points blocks"] | None
    path: PiecewisePolynomial

    @classmethod
    def at_knots(cls, path: PiecewisePolynomial, keys: Keys) -> _CellSums:
        """Cells between the knots themselves, in one piece."""
        return cls._build(path, keys, None, torch.zeros_like(keys.time, dtype=torch.long))

    @classmethod
    def between_points(cls, path: PiecewisePolynomial, keys: Keys) -> _CellSums:
        """Cells between arbitrary points that include all knots and all edges of pieces."""
        following = torch.cat([keys.time[:, 1:], keys.time[:, -1:]], dim=1)
        middle = (keys.time + following) / 2
        cell, _ = path.locate(middle)
        return cls._build(path, keys, cell, keys.pieces.locate(middle))

    @classmethod
    def _build(cls, path: PiecewisePolynomial, keys: Keys, cell: Tensor | None, piece: Tensor) -> _CellSums:
        series = keys.key_series
        assert series is not None
        batch, heads, length, _, terms, dk = series.shape
        following = torch.cat([keys.time[:, 1:], keys.time[:, -1:]], dim=1)
        moments = interval_moments(path, keys.pieces, terms, keys.time, following, cell, piece)
        moments = moments.unflatten(-1, (heads, dk)).permute(0, 3, 1, 2, 4).flatten(3)
        flat = series.flatten(3)
        blocks = -(-length // BLOCK)
        size = -(-length // blocks)

        def blocked(x: Tensor) -> Tensor:
            return pad(x, (0, 0, 0, blocks * size - length)).unflatten(2, (blocks, size))

        coefficients, moments = blocked(flat), blocked(moments)
        each = coefficients @ moments.mT
        reached = torch.ones(size, size + 1, device=flat.device, dtype=flat.dtype).triu(1)
        within = each.triu() @ reached + each.tril(-1) @ (1 - reached)
        left = right = None
        # the moments from the block's left edge to each point, and from each point to its right edge
        before, after = reached.T[:size] @ moments, (1 - reached).T @ moments
        if blocks > 1:
            crossed = flat @ after[:, :, :, 0].mT
            crossed = pad(crossed, (0, 0, 0, blocks * size - length)).unflatten(2, (blocks, size)).transpose(3, 4)
            later = torch.ones(blocks, blocks, device=flat.device, dtype=flat.dtype).triu(1)
            # left[I, J] = to the end of the own block + blocks strictly between I and J; right is its mirror image
            onward = (later.unsqueeze(-1) * crossed).mT @ later
            backward = (later.T.unsqueeze(-1) * crossed).mT @ later.T
            left = (within[..., -1:] + onward).flatten(2, 3)[:, :, :length]
            right = (within[..., :1] + backward).flatten(2, 3)[:, :, :length]
        return cls(size, keys.time, piece, flat, terms * dk, within, before, after, left, right, path)

    def integrals(self, rows: Rows, keys: Keys) -> Float[Tensor, "batch heads rows keys"]:
        """``∫ q·k_i`` between each key and each row, whatever side the key is on: never negative lengths."""
        block, size = rows.block, self.size
        length = self.series.shape[2]
        start, stop = block * size, min((block + 1) * size, length)
        within = self.within[:, :, block, : stop - start]
        if rows.left is None:
            count = rows.time.shape[1]
            near = within[..., :count].mT
            before, after = self.before[:, :, block, :count], self.after[:, :, block, :count]
            used = slice(0, self.series.shape[-1])
        else:
            before, after, near, used = self._between(rows, keys, within, start, stop)
        parts = [near]
        if start > 0:
            assert self.left is not None
            parts.insert(0, _carried(self.left[:, :, :start, block], before, self.series[:, :, :start, used]))
        if stop < length:
            assert self.right is not None
            parts.append(_carried(self.right[:, :, stop:, block], after, self.series[:, :, stop:, used]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)

    def _between(
        self, rows: Rows, keys: Keys, within: Tensor, start: int, stop: int
    ) -> tuple[Tensor, Tensor, Tensor, slice]:
        """The same for rows between points: the partial cells to the left and right of the row come on top."""
        heads = self.series.shape[1]
        assert rows.left is not None
        left = rows.left
        point = self.time.gather(1, left + start)
        after_point = self.time.gather(1, (left + start + 1).clamp(max=self.time.shape[1] - 1))
        terms = self.width // keys.key.shape[-1]
        if rows.known is rows.time:
            piece = self.piece.gather(1, left + start)
            cell, _ = self.path.locate((point + after_point) / 2)
            to_left = interval_moments(self.path, keys.pieces, terms, point, rows.time, cell, piece)
            to_right = interval_moments(self.path, keys.pieces, terms, rows.time, after_point, cell, piece)
        else:
            # beyond the last observation a causal model holds the query: the next one is not known yet
            held = rows.query.transpose(1, 2).flatten(2)
            to_left = held_moments(held, keys.pieces, terms, rows.known, rows.time)
            to_right = torch.zeros_like(to_left)
        used = self._pieces_used(rows, keys, start, stop)

        def by_head(x: Tensor) -> Tensor:
            return x.unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4).flatten(3)[..., used]

        def pick(x: Tensor, index: Tensor) -> Tensor:
            return x.gather(2, index[:, None, :, None].expand(-1, heads, -1, x.shape[-1]))

        to_left, to_right = by_head(to_left), by_head(to_right)
        series = self.series[:, :, start:stop, used]
        columns = within.mT
        key_index = torch.arange(stop - start, device=left.device)
        near = torch.where(
            (key_index <= left[..., None]).unsqueeze(1),
            pick(columns, left) + to_left @ series.mT,
            pick(columns, left + 1) + to_right @ series.mT,
        )
        before = pick(self.before[:, :, rows.block, :, used], left) + to_left
        after = pick(self.after[:, :, rows.block, :, used], left + 1) + to_right
        return before, after, near, used

    def _pieces_used(self, rows: Rows, keys: Keys, start: int, stop: int) -> slice:
        """The coefficients of the pieces that the rows' block touches: the moments are zero in all others."""
        count = keys.pieces.count
        if count == 1 or torch.compiler.is_compiling():
            return slice(0, self.series.shape[-1])
        low = int(self.piece[:, start:stop].min())
        high = max(int(self.piece[:, start:stop].max()), int(keys.pieces.locate(rows.time).max()))
        return slice(low * self.width, (high + 1) * self.width)


def _carried(carry: Tensor, moments: Tensor, series: Tensor) -> Tensor:
    """``carry_i + moments_j · series_i`` [B, H, R, keys] in one pass."""
    batch, heads, rows, inner = moments.shape
    return torch.baddbmm(
        carry.flatten(0, 1).unsqueeze(1), moments.flatten(0, 1), series.flatten(0, 1).mT
    ).unflatten(0, (batch, heads))


@dataclass(frozen=True)
class _Pairs:
    """Gauss-Legendre points between every row and key: what the paper calls the rule with P points."""

    query: list[Tensor]
    basis: list[Tensor]
    weights: list[float]

    @classmethod
    def of(cls, rows: Rows, path: PiecewisePolynomial, keys: Keys, rule: AttentionRule) -> _Pairs:
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
class _Mixer:
    """Weighted sums of the values' means: ``Σ_i weights_i v̂_i(u)``.

    On the piece of ``u`` the mean from the key, or from the piece's edge that is nearer to it, is a series in ``u``
    (``means`` [B, H, L, P, M dv]); what lies beyond that edge is ``carry`` [B, H, L, P dv].
    """

    means: Tensor | None
    carry: Tensor | None

    @classmethod
    def of(cls, keys: Keys, rule: AttentionRule) -> _Mixer:
        series = keys.value_series
        if not rule.continuous_values or series is None or rule.rule == "gauss":
            return cls(None, None)
        if rule.rule == "linear":
            return cls(series.flatten(3), None)
        low, high = keys.pieces.edges[:, None, :-1], keys.pieces.edges[:, None, 1:]
        nearest = keys.time[..., None].clamp(low, high)
        index = torch.arange(keys.pieces.count, device=nearest.device).expand_as(nearest)
        to_mean = running_mean_matrix(keys.pieces.local(nearest, index), series.shape[4]).to(series.dtype)
        means = to_mean.unsqueeze(1) @ series
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
        return (basis[:, None, :, None, :] @ series).squeeze(-2)

    def __call__(
        self, weights: Tensor, rows: Rows, keys: Keys, pair: _Pairs | None, gap: Tensor, rule: AttentionRule
    ) -> Float[Tensor, "batch heads rows dv"]:
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


def _with_edges(keys: Keys, length: int) -> tuple[Keys, Int[Tensor, "batch keys"]]:
    """Keys and edges of pieces in one list of points, the edges masked; and where each key went."""
    edges = keys.pieces.edges
    batch = edges.shape[0]
    valid = torch.ones_like(keys.time, dtype=torch.bool) if keys.valid is None else keys.valid
    time = torch.cat([keys.time, edges], dim=1)
    time, order = time.sort(dim=1, stable=True)
    is_key = order < length
    mask = valid.gather(1, order.clamp(max=length - 1)) & is_key
    went = torch.zeros(batch, time.shape[1], dtype=torch.long, device=time.device)
    went = went.scatter(1, order, torch.arange(time.shape[1], device=time.device).expand_as(order))
    return keys.rearranged(order.clamp(max=length - 1), time, mask), went[:, :length]


def _chunks_at_knots(path: PiecewisePolynomial, keys: Keys, sums: _CellSums | None, heads: int) -> Iterator[Rows]:
    """Rows at the knots, in their order."""
    query = split_heads(path.coefficients[:, :, 0], heads)
    step = ROWS if sums is None else sums.size
    for block, start in enumerate(range(0, keys.time.shape[1], step)):
        rows = slice(start, start + step)
        yield Rows(keys.time[:, rows], query[:, :, rows], keys.time[:, rows], block)


def _chunks_anywhere(
    path: PiecewisePolynomial, keys: Keys, sums: _CellSums | None, queries: Tensor, heads: int, causal: bool
) -> tuple[Iterator[Rows], Int[Tensor, "batch query"]]:
    """Rows at any times, grouped by the block of points they lie in; and where each query is found among the rows."""
    batch, count = queries.shape
    known, left = queries, torch.zeros_like(queries, dtype=torch.long)
    points = keys.time.contiguous()
    if causal:
        known, left, _ = last_observed(keys.time, keys.valid, queries)
    elif sums is not None:
        left = torch.searchsorted(points, queries.detach().contiguous(), right=True).sub(1).clamp(0, points.shape[1] - 2)
    size = points.shape[1] if sums is None else sums.size
    block = left // size
    order = torch.argsort(block, dim=1, stable=True)
    block_sorted = block.gather(1, order)
    totals = torch.nn.functional.one_hot(block_sorted, int(block.max()) + 1).sum(1)
    first = totals.cumsum(1) - totals
    most = totals.amax(0).tolist()
    place = torch.zeros_like(order)
    offsets = torch.tensor([0, *most], device=queries.device).cumsum(0)[:-1]
    rank = torch.arange(count, device=queries.device) - first.gather(1, block_sorted)
    place = place.scatter(1, order, offsets[block_sorted] + rank)

    def chunks() -> Iterator[Rows]:
        for number, rows_here in enumerate(most):
            for start in range(0, rows_here, ROWS):
                stop = min(start + ROWS, rows_here)
                wanted = first[:, number : number + 1] + torch.arange(start, stop, device=queries.device)
                index = order.gather(1, wanted.clamp(max=count - 1))
                # a sequence with fewer rows in this block fills up with a query from elsewhere, which is not read back
                local = (left.gather(1, index) - number * size).clamp(0, size - 1)
                time = queries.gather(1, index)
                until = known.gather(1, index) if causal else time
                query = split_heads(path(until), heads)
                yield Rows(time, query, until, number, local)

    return chunks(), place

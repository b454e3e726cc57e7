"""Continuous-time attention from one trajectory per observation and matrix products.

For key ``i`` and query time ``u`` the score is the mean of ``q·k_i`` over ``[t_i, u]``
(:mod:`contiformer.nn.score_integrals`) and the value the mean of ``v_i`` (:mod:`contiformer.nn.value_means`). What
:mod:`contiformer.nn.fused_knots` can do is done there, in one compiled call. Of the rest, queries at the observations
themselves go through
:mod:`contiformer.nn.knot_attention`; any other times are grouped by the block of points they lie in.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contiformer.nn.attention_inputs import Keys, Rows
from contiformer.nn.dropout import drop
from contiformer.nn.heads import split_heads
from contiformer.nn.knot_attention import KnotProblem, knot_attention
from contiformer.nn.observations import last_observed
from contiformer.nn.rules import AttentionRule
from contiformer.nn.score_integrals import CellSums, padded
from contiformer.nn.value_means import CompiledPairs, Mixer, Pairs, points_between
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.trajectories import evaluate_basis

#: Rows are taken in chunks of at most so many, and of at most so many scores: their temporaries stay small.
ROWS = 128
SCORES = 2**20
#: Weights beyond this many are recomputed in the backward pass instead of kept.
KEEP_WEIGHTS = 2**25


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
        sums = CellSums.at_knots(path, keys) if summed else None
        if sums is not None and rule.normalized and not return_weights:
            return _attend_at_knots(path, keys, sums, rule, keep_weights), None
        chunks: Iterator[Rows] = _chunks_at_knots(path, keys, sums, heads)
    else:
        if summed:
            keys, order = _with_edges(keys, length)
        sums = CellSums.between_points(path, keys) if summed else None
        chunks, back = _chunks_anywhere(path, keys, sums, queries, heads, rule.causal)
    mixer = Mixer.of(keys, rule)
    outputs: list[Tensor] = []
    weights: list[Tensor] = []
    for rows in chunks:
        arguments = (rows, path, keys, sums, mixer, rule, return_weights)
        if keep_weights or not torch.is_grad_enabled():
            out, weight = _attend_rows(*arguments)
        else:
            out, weight = checkpoint(_attend_rows, *arguments, use_reentrant=False)
        outputs.append(out)
        if weight is not None:
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
    path: PiecewisePolynomial, keys: Keys, sums: CellSums, rule: AttentionRule, keep_weights: bool
) -> Float[Tensor, "batch heads keys dv"]:
    """The usual case, queries at the observations in one piece, where blocks of rows and of keys are the same."""
    batch, heads, _, dk = keys.key.shape
    mixer = Mixer.of(keys, rule)
    own = (split_heads(path.coefficients[:, :, 0], heads) * keys.key).sum(-1)
    blocks, size = sums.within.shape[2:4]
    own = padded(own.unsqueeze(-1), blocks * size).squeeze(-1).unflatten(2, (blocks, size))
    within = sums.within[..., :size] + torch.diag_embed(own)
    none = keys.key.new_zeros(batch, heads, blocks, 0)
    left = none if sums.left is None else sums.left.mT.contiguous()
    right = none if sums.right is None else sums.right.mT.contiguous()
    values = keys.value if mixer.means is None else mixer.means
    seed = int(torch.randint(2**31, ())) if rule.dropout > 0 else 0
    valid = None if keys.valid is None else keys.valid.contiguous()
    problem = KnotProblem(
        keys.time.contiguous(), valid, sums.size, rule.scale(dk), rule.causal, rule.dropout, seed, keep_weights
    )
    parts = (sums.series, sums.before, sums.after, within, left, right)
    flat = tuple(part.flatten(0, 1) for part in parts)
    mixed = knot_attention(flat, values.flatten(0, 1), problem, heads).unflatten(0, (batch, heads))
    return mixer.read(mixed, keys.time, keys)


def _attend_rows(
    rows: Rows,
    path: PiecewisePolynomial,
    keys: Keys,
    sums: CellSums | None,
    mixer: Mixer,
    rule: AttentionRule,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Scores, softmax and weighted values of some rows."""
    gap = rows.time[:, :, None] - keys.time[:, None, :]
    pair = points_between(rows, path, keys, rule) if rule.rule == "gauss" and rule.continuous else None
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
    dropped = drop(weights, rule.dropout)
    return mixer(dropped, rows, keys, pair, gap, rule), weights if return_weights else None


def _scores(
    rows: Rows,
    path: PiecewisePolynomial,
    keys: Keys,
    sums: CellSums | None,
    pair: Pairs | CompiledPairs | None,
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


def _chunks_at_knots(path: PiecewisePolynomial, keys: Keys, sums: CellSums | None, heads: int) -> Iterator[Rows]:
    """Rows at the knots, in their order."""
    query = split_heads(path.coefficients[:, :, 0], heads)
    step = ROWS if sums is None else sums.size
    for block, start in enumerate(range(0, keys.time.shape[1], step)):
        rows = slice(start, start + step)
        yield Rows(keys.time[:, rows], query[:, :, rows], keys.time[:, rows], block)


def _chunks_anywhere(
    path: PiecewisePolynomial, keys: Keys, sums: CellSums | None, queries: Tensor, heads: int, causal: bool
) -> tuple[Iterator[Rows], Int[Tensor, "batch query"]]:
    """Rows at any times, grouped by the block of points they lie in; and where each query is found among the rows."""
    count = queries.shape[1]
    known, left = queries, torch.zeros_like(queries, dtype=torch.long)
    points = keys.time.contiguous()
    if causal:
        known, left, _ = last_observed(keys.time, keys.valid, queries)
    elif sums is not None:
        left = (
            torch.searchsorted(points, queries.detach().contiguous(), right=True).sub(1).clamp(0, points.shape[1] - 2)
        )
    size = points.shape[1] if sums is None else sums.size
    most_rows = max(16, min(ROWS, SCORES // (points.numel() * heads)))
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
            for start in range(0, rows_here, most_rows):
                stop = min(start + most_rows, rows_here)
                wanted = first[:, number : number + 1] + torch.arange(start, stop, device=queries.device)
                index = order.gather(1, wanted.clamp(max=count - 1))
                # a sequence with fewer rows in this block fills up with a query from elsewhere, which is not read back
                local = (left.gather(1, index) - number * size).clamp(0, size - 1)
                time = queries.gather(1, index)
                until = known.gather(1, index) if causal else time
                query = split_heads(path(until), heads)
                yield Rows(time, query, until, number, local)

    return chunks(), place

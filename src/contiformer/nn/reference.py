"""Continuous-time attention as plain tensor operations, in the order of the paper's formulas.

This listing is the oracle of the compiled kernel and serves wherever the kernel does not: any device and dtype,
``torch.compile``, ``torch.export``, ONNX and ``torch.func``. Shapes depend on shapes only, never on values.

Dimensions: B sequences, N keys, Q queries, H heads of width dk, P pieces of time, M terms of a series on a piece.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torch.utils.checkpoint import checkpoint

from contiformer.nn.dropout import drop
from contiformer.nn.heads import join_heads, split_heads
from contiformer.nn.pairs import Keys, Queries, mix, pair_scores, pair_values
from contiformer.nn.rules import AttentionRule
from contiformer.paths import trajectories
from contiformer.paths.interpolation import PiecewisePolynomial, count_until, pick_rows
from contiformer.paths.trajectories import Pieces, StackedField, basis_means, evaluate_basis, running_means


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
    *,
    return_weights: bool = False,
    block: int | None = None,
) -> tuple[Float[Tensor, "batch query d"], Float[Tensor, "batch heads query keys"] | None, Float[Tensor, " batch"]]:
    """Attend from the query path to the keys: outputs, weights on request, and the tail of each sequence's series.

    Args:
        path: of the queries; its knots are ``times``.
        k, v: keys and values at their own times.
        times: not decreasing, in float64 where the device has it; padding behind the valid keys repeats the last time.
        valid: the keys that may be attended to; None: all.
        query_times: in any order; None: ``times``.
        edges: of the pieces of time, on each of which a trajectory is one series.
        field: of the stacked trajectories: those of keys and of values, as far as the rule makes them continuous.
        nodes: per piece; a series has twice as many terms.
        block: keys that are worked on at a time, to save memory; None: all.
    """
    pieces = Pieces(edges.detach())
    queries = _read_path(path, query_times, pieces, rule, heads, 2 * nodes)

    def attend_to(start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Attention to some of the keys: output, weights (of a block their normaliser), and sums for the tail."""
        time, key, value = times[:, start:stop], k[:, start:stop], v[:, start:stop]
        shown = torch.ones_like(time, dtype=torch.bool) if valid is None else valid[:, start:stop]
        gap = queries.time[:, :, None] - time[:, None, :]
        allowed = (shown[:, None, :] & (gap >= 0) if rule.causal else shown[:, None, :]).unsqueeze(1)
        # trajectories k_i(t) and v_i(t) of the keys, as series on every piece
        curves = [x for x, moves in ((key, rule.continuous_scores), (value, rule.continuous_values)) if moves]
        sizes, key_series, value_series = times.new_zeros(3, 1, k.shape[0], pieces.count), None, None
        if curves:
            initial = torch.stack(curves)
            series = trajectories.solve_trajectories(field, initial, time, pieces, nodes, causal=rule.causal)
            sizes = trajectories.series_sizes(series, initial, time, shown, pieces, rule.causal)
            key_series = series[0] if rule.continuous_scores else None
            value_series = series[-1] if rule.continuous_values else None
        keys = Keys(start, time, key, value, key_series, value_series, gap)
        # scores α_i(u): means of q·k_i over [t_i, u]
        scores = _scores(queries, keys, path, pieces, rule, heads) * rule.scale(k.shape[-1] // heads)
        scores = torch.where(allowed, scores, torch.finfo(k.dtype).min)
        # a query that may attend to nothing gets weights of zero
        weights = scores.softmax(-1) * allowed
        # output: weighted sum of the means of v_i over [t_i, u]
        out = _weighted_values(drop(weights, rule.dropout), queries, keys, pieces, rule, heads)
        return out, weights if block is None else scores.logsumexp(-1, keepdim=True), sizes

    if block is None:
        out, weights, sizes = attend_to(0, k.shape[1])
        return join_heads(out), weights if return_weights else None, trajectories.tail_of(sizes)
    parts = []
    for start in range(0, k.shape[1], block):
        bounds = (start, min(start + block, k.shape[1]))
        again = torch.is_grad_enabled()
        parts.append(checkpoint(attend_to, *bounds, use_reentrant=False) if again else attend_to(*bounds))
    outs, sums, sizes_of = zip(*parts, strict=True)
    # a softmax over all keys is the softmax of each block, times the block's share of the sum of exponentials
    out = (torch.stack(sums).softmax(0) * torch.stack(outs)).sum(0)
    return join_heads(out), None, trajectories.tail_of(torch.stack(sizes_of).sum(0))


def _read_path(
    path: PiecewisePolynomial, query_times: Tensor | None, pieces: Pieces, rule: AttentionRule, heads: int, terms: int
) -> Queries:
    """Everything about the queries that does not depend on a key."""
    knots, at_knots, cells = path.knots, path.coefficients[:, :, 0], None
    parts: tuple[Tensor, ...] = ()
    exact = rule.continuous_scores and rule.rule == "exact"
    if exact:
        step = torch.cat([knots[:, 1:] - knots[:, :-1], torch.zeros_like(knots[:, :1])], 1)
        means = basis_means(path, None, knots, step, pieces, terms, heads)
        cells = means * step.to(means.dtype)[:, None, :, None]
    if query_times is None:
        return Queries(knots, None, split_heads(at_knots, heads), cells, ())
    knot = count_until(knots, query_times) - 1
    before = knot.clamp(min=0)
    if exact:
        after = (knot + 1).clamp(max=knots.shape[1] - 1)
        start = torch.where(knot < 0, query_times, knots.gather(1, before))
        stop = torch.where(after == knot, query_times, knots.gather(1, after))
        # before the first knot the path is held, in a causal model between knots too: the next one is not known yet
        held = (before, (knot < 0) | rule.causal)
        parts = (basis_means(path, held, start, query_times - start, pieces, terms, heads),)
        if not rule.causal:
            parts += (basis_means(path, held, query_times, stop - query_times, pieces, terms, heads),)
    value = pick_rows(at_knots, before) if rule.causal else path(query_times)
    return Queries(query_times, knot, split_heads(value, heads), cells, parts)


def _scores(
    queries: Queries, keys: Keys, path: PiecewisePolynomial, pieces: Pieces, rule: AttentionRule, heads: int
) -> Float[Tensor, "batch heads query keys"]:
    """``α_i(u)`` by the rule."""
    key, series = keys.key, keys.key_series
    if series is None:
        return queries.value @ split_heads(key, heads).mT
    at_keys = path.coefficients[:, keys.first : keys.first + key.shape[1], 0]
    own = (at_keys * key).unflatten(-1, (heads, -1)).sum(-1).transpose(1, 2).unsqueeze(2)  # q(t_i)·K_i
    flat = series.unflatten(-1, (heads, -1)).permute(0, 4, 1, 2, 3, 5).flatten(3)
    if rule.rule == "exact":
        mean = _exact_scores(queries, keys, path.knots, flat, own, rule.causal)
    else:
        mean = pair_scores(queries, keys, path, flat, own, pieces, rule, heads)
    return mean if rule.normalize_scores else mean * keys.gap.to(key.dtype).unsqueeze(1)


def _exact_scores(
    queries: Queries, keys: Keys, knots: Tensor, series: Tensor, own: Tensor, causal: bool
) -> Float[Tensor, "batch heads query keys"]:
    """Means of ``q·k_i`` over ``[t_i, u]``: first at the knots, by sums over the cells between key and knot.

    The sums run outwards from the key, never as a difference of two sums, so close times lose nothing. From the knot
    towards a query the mean goes on by ``mean + share (part - mean)``, with the mean over that part and its share of
    the interval: nothing is divided by a short length.
    """
    first, time, dtype = keys.first, keys.time, series.dtype
    assert queries.cells is not None
    each = queries.cells @ series.mT  # [B, H, knots, keys]: ∫ q·k_i over the cell behind each knot
    integral = pad(each.tril(-first), (0, 0, 1, -1)).cumsum(2)
    if not causal:
        integral = integral + each.triu(1 - first).flip(2).cumsum(2).flip(2)
    distance = (knots[:, :, None] - time[:, None, :]).abs()
    together = distance == 0
    factor = distance.masked_fill(together, 1.0).reciprocal().to(dtype)
    mean = torch.where(together.unsqueeze(1), own, integral * factor.unsqueeze(1))
    if queries.knot is None:
        return mean
    number = torch.arange(first, first + time.shape[1], device=time.device)
    beyond = number > queries.knot[..., None]  # [B, Q, keys]: keys after the query, which start from the next knot
    row = queries.knot[..., None] + beyond
    mean = mean.gather(2, row.unsqueeze(1).expand(-1, mean.shape[1], -1, -1))
    part = queries.parts[0] @ series.mT
    if not causal:
        part = torch.where(beyond.unsqueeze(1), queries.parts[1] @ series.mT, part)
    near = knots.gather(1, row.flatten(1)).view_as(row)
    length, reach = queries.time[..., None] - near, near - time[:, None, :]
    length, reach = (torch.where(beyond, -x, x) for x in (length, reach))
    alone = reach == 0
    share = torch.where(alone, 1.0, length / (reach + length).masked_fill(alone, 1.0)).to(dtype).unsqueeze(1)
    # at the key's own time the mean is q(t_i)·K_i, with the derivative of the mean in time
    part = torch.where((alone & (length == 0)).unsqueeze(1), part + (mean - part).detach(), part)
    return mean + share * (part - mean)


def _weighted_values(
    weights: Tensor, queries: Queries, keys: Keys, pieces: Pieces, rule: AttentionRule, heads: int
) -> Float[Tensor, "batch heads query dk"]:
    """``Σ_i weights_i v̂_i(u)``: the mean of a series from ``t_i`` to ``u`` is a series in ``u`` itself."""
    series, time, gap, dtype = keys.value_series, keys.time, keys.gap, weights.dtype
    if series is None:
        return weights @ split_heads(keys.value, heads)
    if not rule.normalize_values:
        weights = weights * gap.to(dtype).unsqueeze(1)
    if rule.rule != "exact":
        return pair_values(weights, queries, keys, pieces, rule, heads)
    basis = evaluate_basis(pieces, queries.time, series.shape[3]).flatten(2).to(dtype)
    means, carry = running_means(series, time, pieces, rule.causal)
    if carry is None:
        return mix(weights, basis, means.flatten(2, 3), heads)
    # beyond the key's own piece: (∫ up to the edge of the query's piece + (u - edge) mean from the edge on) / gap
    piece = pieces.locate(queries.time)
    inside = pieces.locate(time)[:, None, :] == piece[..., None]
    edge = torch.where(gap > 0, pieces.edges.gather(1, piece)[..., None], pieces.edges.gather(1, piece + 1)[..., None])
    factor = torch.where(inside, 0.0, 1 / gap.masked_fill(inside, 1.0))
    share = torch.where(inside, 1.0, (queries.time[..., None] - edge) * factor)
    out = mix(weights * share.to(dtype).unsqueeze(1), basis, means.flatten(2, 3), heads)
    slot = one_hot(piece, pieces.count).to(dtype)
    return out + mix(weights * factor.abs().to(dtype).unsqueeze(1), slot, carry, heads)

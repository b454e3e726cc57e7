"""A slow, converged reference for continuous attention in float64, which shares no code with what it checks.

The trajectories and the running integrals are carried from every observation outwards, from one breakpoint (observation
or query) to the next, by Gauss collocation of order 12: within a cell everything is smooth, so it converges to
rounding. The interpolants are written down again, from the textbook.
"""

import numpy as np
import torch


def query_path(kind, times, values):
    """``q(t)`` through distinct knots, constant outside, from the textbook formulas."""
    t, v = np.asarray(times), np.asarray(values)
    knots = np.unique(t)
    v = np.stack([v[t == knot].mean(0) for knot in knots])
    n = len(knots)
    if n == 1:
        return lambda at: np.broadcast_to(v[0], (*np.shape(at), v.shape[1]))
    h, rise = np.diff(knots)[:, None], np.diff(v, axis=0)
    slope = rise / h
    if kind == "linear":
        start = end = slope
    elif kind == "hermite":
        start, end = np.concatenate([slope[:1], slope[:-1]]), slope
    else:
        system = np.zeros((n, n))
        right = np.zeros_like(v)
        system[0, :2], system[-1, -2:] = (2, 1), (1, 2)
        right[0], right[-1] = 3 * slope[0], 3 * slope[-1]
        for i in range(1, n - 1):
            system[i, i - 1 : i + 2] = h[i, 0], 2 * (h[i - 1, 0] + h[i, 0]), h[i - 1, 0]
            right[i] = 3 * (h[i - 1] * slope[i] + h[i] * slope[i - 1])
        at_knots = np.linalg.solve(system, right)
        start, end = at_knots[:-1], at_knots[1:]

    def evaluate(at):
        at = np.clip(np.asarray(at), knots[0], knots[-1])
        cell = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, n - 2)
        s = ((at - knots[cell]) / h[cell, 0])[..., None]
        b, c = start[cell] * h[cell], end[cell] * h[cell]
        return v[cell] + s * b + s**2 * (3 * rise[cell] - 2 * b - c) + s**3 * (b + c - 2 * rise[cell])

    return evaluate


def collocation(stages):
    """Gauss-Legendre collocation on [0, 1]: nodes, weights, and ``A[i, j]``, the integral of ``ℓ_j`` up to node i."""
    nodes, weights = np.polynomial.legendre.leggauss(stages)
    nodes, weights = (nodes + 1) / 2, weights / 2
    powers = np.arange(stages)
    lagrange = np.linalg.inv(np.vander(nodes, increasing=True))
    inner = (nodes[:, None] ** (powers + 1) / (powers + 1)) @ lagrange
    return tuple(torch.tensor(table) for table in (nodes, weights, inner))


NODES, WEIGHTS, INNER = collocation(6)


def _stages(slope, x, start, h):
    """Times [s] and states [s, N, d] of the collocation polynomial, found by fixed-point iteration."""
    at = start + NODES * h
    states = x.expand(len(NODES), -1, -1)
    for _ in range(60):
        moved = x + torch.einsum("ij,jnd->ind", INNER, slope(at, states)) * h
        change, states = float((moved - states).abs().max()), moved
        if change < 1e-14 * (1 + float(states.abs().max())):
            break
    return at, states


def _outward(field, state, times, points, weight, step):
    """Carry (x, ∫x, ∫ q·x per head) from each observation to every point; the integrals grow away from it."""
    heads = weight(points[:1]).shape[-2]
    n, d = state.shape
    shape = (len(points), n)
    area, score = state.new_zeros(*shape, d), state.new_zeros(*shape, heads)

    def slope(t, x):
        return field(t[:, None, None].expand(*x.shape[:-1], 1), x)

    for forward in (True, False):
        x, total, dot = state.clone(), torch.zeros_like(state), state.new_zeros(n, heads)
        order = range(len(points) - 1) if forward else range(len(points) - 1, 0, -1)
        for g in order:
            target = g + 1 if forward else g - 1
            low, high = sorted((points[g], points[target]))
            here = times <= low if forward else times >= high
            if not here.any():
                continue
            count = max(1, int(np.ceil(float(high - low) / step)))
            h = (points[target] - points[g]) / count
            for number in range(count):
                at, states = _stages(slope, x[here], points[g] + number * h, h)
                product = (weight(at)[:, None] * states.unflatten(-1, (heads, -1))).sum(-1)
                dot[here] += h.abs() * torch.einsum("s,snh->nh", WEIGHTS, product)
                total[here] += h.abs() * torch.einsum("s,snd->nd", WEIGHTS, states)
                x[here] += h * torch.einsum("s,snd->nd", WEIGHTS, slope(at, states))
            area[target, here], score[target, here] = total[here], dot[here]
    return area, score


@torch.no_grad()
def exact_attention(attention, x, times, query_times=None, step=0.05):
    """Output [Q, d] of ``rule="exact"`` for one sequence: x [N, d], times [N], all observed, in float64."""
    rule, heads = attention.rule, attention.n_heads
    query_times = times if query_times is None else query_times
    q, k, v = attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)
    path = query_path(attention.interpolation, times.numpy(), q.numpy())

    def weight(at):
        return torch.tensor(path(at.numpy())).unflatten(-1, (heads, -1))

    points = torch.cat([times, query_times]).unique()
    k_area, k_score = _outward(attention.key_field, k, times, points, weight, step)
    v_area, _ = _outward(attention.value_field, v, times, points, weight, step)
    out = []
    for u in query_times:
        at = int(torch.searchsorted(points, u))
        gap = (u - times).abs()
        together = gap == 0
        allowed = torch.ones_like(together)
        score, now = k_score[at], weight(u[None])
        if rule.causal:
            allowed = times <= u
            if not allowed.any():
                out.append(torch.zeros(x.shape[1], dtype=x.dtype))
                continue
            last = times[allowed].max()
            before = int(torch.searchsorted(points, last))
            now = weight(last[None])
            since = (k_area[at] - k_area[before]).unflatten(-1, (heads, -1))
            score = k_score[before] + (now * since).sum(-1)
        safe = torch.where(together, 1.0, gap)[:, None]
        if rule.normalize_scores:
            score = torch.where(together[:, None], (now * k.unflatten(-1, (heads, -1))).sum(-1), score / safe)
        else:
            score = score * (u - times).sign()[:, None]
        if rule.normalize_values:
            value = torch.where(together[:, None], v, v_area[at] / safe)
        else:
            value = v_area[at] * (u - times).sign()[:, None]
        score = (score * (x.shape[1] // heads) ** -0.5).masked_fill(~allowed[:, None], -torch.inf)
        out.append((score.softmax(0)[..., None] * value.unflatten(-1, (heads, -1))).sum(0).flatten())
    return attention.out_proj(torch.stack(out))

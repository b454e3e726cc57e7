"""A slow, converged reference for continuous attention in float64, which shares no code with what it checks.

The trajectories and the running integrals are carried from every observation outwards, from one breakpoint (observation
or query) to the next, with many small Runge-Kutta steps: within a cell everything is smooth, so the steps converge.
The interpolants are written down again, from the textbook.
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


def _outward(field, state, times, points, weight, step):
    """Carry (x, ∫x, ∫ q·x per head) from each observation to every point; the integrals grow away from it."""
    heads = weight(points[:1]).shape[-2]
    n, d = state.shape
    shape = (len(points), n)
    curve, area = state.new_zeros(*shape, d), state.new_zeros(*shape, d)
    score = state.new_zeros(*shape, heads)

    def slope(t, x):
        return field(t[:, None], x)

    for order in (range(len(points) - 1), range(len(points) - 1, 0, -1)):
        x, total, dot = state.clone(), torch.zeros_like(state), state.new_zeros(n, heads)
        forward = order.step > 0
        first = order[0] if len(order) else 0
        own = times == points[first]
        curve[first, own] = state[own]
        for g in order:
            target = g + 1 if forward else g - 1
            low, high = sorted((points[g], points[target]))
            begin = times.clamp(low, high)
            count = max(1, int(np.ceil((high - low) / step)))
            h = ((points[target] - begin) / count)[:, None]
            at = begin
            for _ in range(count):
                mid, end = at + h[:, 0] / 2, at + h[:, 0]
                k1 = slope(at, x)
                x2 = x + h / 2 * k1
                k2 = slope(mid, x2)
                x3 = x + h / 2 * k2
                k3 = slope(mid, x3)
                x4 = x + h * k3
                k4 = slope(end, x4)
                q = [weight(c) for c in (at, mid, end)]

                def product(q, x):
                    return (q * x.unflatten(-1, (heads, -1))).sum(-1)

                dot = dot + h.abs() / 6 * (
                    product(q[0], x) + 2 * product(q[1], x2) + 2 * product(q[1], x3) + product(q[2], x4)
                )
                total = total + h.abs() / 6 * (x + 2 * x2 + 2 * x3 + x4)
                x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                at = end
            here = times <= points[target] if forward else times >= points[target]
            curve[target, here], area[target, here], score[target, here] = x[here], total[here], dot[here]
    if len(points) == 1:
        curve[0] = state
    return curve, area, score


@torch.no_grad()
def exact_attention(attention, x, times, query_times=None, step=0.01):
    """Output [Q, d] of ``rule="exact"`` for one sequence: x [N, d], times [N], all observed, in float64."""
    rule, heads = attention.rule, attention.n_heads
    query_times = times if query_times is None else query_times
    q, k, v = attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)
    path = query_path(attention.interpolation, times.numpy(), q.numpy())

    def weight(at):
        return torch.from_numpy(np.ascontiguousarray(path(at.numpy()))).unflatten(-1, (heads, -1))

    points = torch.cat([times, query_times]).unique()
    k_curve, k_area, k_score = _outward(attention.key_field, k, times, points, weight, step)
    _, v_area, _ = _outward(attention.value_field, v, times, points, weight, step)
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

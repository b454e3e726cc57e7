"""The oracle against a library's adaptive solver, on a problem small enough for it, straight from the definition."""

import pytest
import torch
from torchdiffeq import odeint

from tests.oracle import exact_attention, query_path
from tests.problems import HEADS, WIDTH, irregular_times, largest, make_attention, normal

TOLERANCE = {"rtol": 1e-10, "atol": 1e-11}


def mean_by_dopri5(field, state, start, end, breaks, integrand):
    """Mean of ``integrand(τ, x(τ))`` from ``start`` to ``end``, restarted at the kinks of the integrand."""
    if start == end:
        return integrand(start, state)
    low, high = sorted((float(start), float(end)))
    stops = sorted({t for t in breaks if low < t < high})
    stops = torch.tensor([start, *(stops if start < end else stops[::-1]), end], dtype=torch.float64)
    total = torch.zeros_like(integrand(start, state))
    for span in stops.unfold(0, 2, 1):
        slope = lambda t, both: (field(t, both[0]), integrand(t, both[0]))  # noqa: E731
        curve, area = odeint(slope, (state, torch.zeros_like(total)), span, **TOLERANCE)
        state, total = curve[-1], total + area[-1]
    return total / (end - start)


@torch.no_grad()
def by_definition(attention, x, times, queries):
    q, k, v = attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)
    path = query_path(attention.interpolation, times.numpy(), q.numpy())
    rows = []
    for u in queries:
        scores, values = [], []
        for i, t in enumerate(times):
            if attention.rule.causal and t > u:
                continue
            known = times[times <= u].max() if attention.rule.causal else torch.tensor(torch.inf)

            def product(tau, key, known=known):
                query = torch.tensor(path(torch.minimum(tau, known).numpy()))
                return (query * key).unflatten(-1, (HEADS, -1)).sum(-1)

            breaks = times.tolist()
            scores.append(mean_by_dopri5(attention.key_field, k[i], t, u, breaks, product))
            values.append(mean_by_dopri5(attention.value_field, v[i], t, u, [], lambda _, value: value))
        if not scores:
            rows.append(torch.zeros(WIDTH, dtype=torch.float64))
            continue
        weights = (torch.stack(scores) / (WIDTH / HEADS) ** 0.5).softmax(0)
        rows.append(torch.einsum("nh,nhd->hd", weights, torch.stack(values).unflatten(-1, (HEADS, -1))).flatten())
    return attention.out_proj(torch.stack(rows))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("interpolation", ["linear", "hermite"])
def test_oracle_is_the_definition_solved_by_dopri5(interpolation, causal):
    attention = make_attention(interpolation=interpolation, causal=causal)
    times, x = torch.tensor([0.1, 0.4, 0.4, 0.75], dtype=torch.float64), normal(4, WIDTH)
    queries = torch.tensor([-0.2, 0.4, 0.6, 1.1], dtype=torch.float64)
    assert largest(exact_attention(attention, x, times, queries) - by_definition(attention, x, times, queries)) < 1e-8


def test_oracle_has_converged_even_where_close_pairs_make_the_queries_huge():
    attention = make_attention(interpolation="hermite")
    times, x = irregular_times(12), normal(12, WIDTH)
    coarse, fine = (exact_attention(attention, x, times, step=step) for step in (0.05, 0.02))
    assert largest(coarse - fine) < 1e-12

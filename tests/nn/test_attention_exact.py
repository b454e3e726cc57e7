"""``rule="exact"`` against the converged oracle."""

import warnings
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contiformer.paths.trajectories import ResolutionWarning
from tests.oracle import exact_attention
from tests.problems import WIDTH, irregular_times, largest, make_attention, normal

FIELDS = ("concat", "concatnorm", "linear")
ACTIVATIONS = ("tanh", "sigmoid")
PATHS = [("linear", False), ("hermite", False), ("cubic", False), ("linear", True), ("hermite", True)]


def at_degree(attention, degree, *arguments):
    attention.degree = degree
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", ResolutionWarning)
        return attention(*(a[None] for a in arguments))[0]


def queries_everywhere(times, count=4):
    """At knots, between them, and on both sides of the data, in no order."""
    span = float(times[-1] - times[0]) + 0.3
    anywhere = float(times[0]) + span * (1.6 * torch.rand(count, dtype=torch.float64) - 0.3)
    return torch.cat([anywhere, times[:: max(1, len(times) // 3)]])


@st.composite
def problems(draw, fields=FIELDS):
    interpolation, causal = draw(st.sampled_from(PATHS))
    attention = make_attention(
        seed=draw(st.integers(0, 10**6)),
        field=draw(st.sampled_from(fields)),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        interpolation=interpolation,
        causal=causal,
        piece_length=draw(st.sampled_from([1.0, 0.45])),
        normalize_scores=draw(st.sampled_from([True, True, False])),
        normalize_values=draw(st.sampled_from([True, True, False])),
    )
    times = irregular_times(draw(st.integers(1, 30)), span=draw(st.sampled_from([1.0, 0.01])))
    x = normal(len(times), WIDTH)
    return attention, x, times, draw(st.sampled_from([None, queries_everywhere(times)]))


@settings(max_examples=40)
@given(problem=problems((*FIELDS, "headwise")))
def test_error_falls_with_the_degree_to_less_than_1e_6(problem):
    attention, x, times, queries = problem
    arguments = (x, times) if queries is None else (x, times, queries)
    expected = exact_attention(attention, *arguments)
    coarse, middle, fine = (largest(at_degree(attention, d, *arguments) - expected) for d in (3, 10, 24))
    assert fine < 1e-6
    assert middle < max(coarse, 1e-9)
    assert fine < max(middle, 1e-9)


@settings(max_examples=40)
@given(problem=problems())
def test_default_degree_in_float32_is_within_a_thousandth_of_the_outputs_scale(problem):
    attention, x, times, queries = problem
    arguments = (times,) if queries is None else (times, queries)
    x = x.float().double()
    expected = exact_attention(attention.float().double(), x, *arguments)
    with torch.no_grad():
        found = attention.float()(x[None].float(), *(a[None] for a in arguments))[0]
    assert found.dtype == torch.float32
    assert largest(found - expected) < 1e-3 * largest(expected)


@pytest.mark.parametrize(
    ("n", "interpolation", "causal"), [(65, *path) for path in PATHS] + [(200, "linear", False), (200, "linear", True)]
)
def test_long_sequences_with_close_and_equal_times(n, interpolation, causal):
    """More than one block of 64 points; with equal times, and without, which is another way through the code."""
    attention = make_attention(interpolation=interpolation, causal=causal)
    times, x = irregular_times(n), normal(n, WIDTH)
    distinct = times.unique()
    queries = queries_everywhere(times, 10)
    assert largest(at_degree(attention, 24, x, times, queries) - exact_attention(attention, x, times, queries)) < 1e-6
    if n == 65:
        x = x[: len(distinct)]
        assert largest(at_degree(attention, 24, x, distinct) - exact_attention(attention, x, distinct)) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0.5, 1.0, 7.3])
def test_linear_field_against_the_matrix_exponential(window, causal):
    attention = make_attention(field="linear", degree=24, causal=causal)
    times, x = irregular_times(9, span=window), normal(9, WIDTH)
    queries = torch.cat([times, window * (1.4 * torch.rand(6, dtype=torch.float64) - 0.2)])
    with torch.no_grad():
        found = attention(x[None], times[None], queries[None])[0]
        assert largest(found - closed_form(attention, x, times, queries)) < 1e-8


def closed_form(attention, x, times, queries):
    heads = attention.n_heads
    q, k, v = attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)
    knots = times.unique()
    at_knots = torch.stack([q[times == t].mean(0) for t in knots])
    rows = []
    for u in queries:
        allowed = [i for i, t in enumerate(times) if t <= u or not attention.rule.causal]
        known = times[times <= u].max() if attention.rule.causal and allowed else torch.inf
        scores, values = [], []
        for i in allowed:
            score = _linear_score(attention.key_field.weight, k[i], times[i], u, knots, at_knots, known, heads)
            scores.append(score / (WIDTH // heads) ** 0.5)
            values.append(_mean_flow(attention.value_field.weight, u - times[i]) @ v[i])
        if not allowed:
            rows.append(torch.zeros(WIDTH, dtype=x.dtype))
            continue
        weights = torch.stack(scores).softmax(0)
        rows.append(torch.einsum("nh,nhd->hd", weights, torch.stack(values).unflatten(-1, (heads, -1))).flatten())
    return attention.out_proj(torch.stack(rows))


def _block_exponential(*blocks_above, matrix, length):
    """``exp`` of a matrix with ``matrix`` and then identities: its blocks are the flow and its repeated integrals."""
    size = len(matrix)
    count = 1 + len(blocks_above)
    big = torch.zeros(count * size, count * size, dtype=matrix.dtype)
    big[:size, :size] = matrix
    for number in range(1, count):
        big[(number - 1) * size : number * size, number * size : (number + 1) * size] = torch.eye(size)
    whole = torch.linalg.matrix_exp(big * length)
    return [whole[:size, number * size : (number + 1) * size] for number in range(count)]


def _flow_and_integrals(matrix, length):
    """``exp(A r)``, ``∫_0^r exp(A s) ds`` and ``∫_0^r (r - s) exp(A s) ds``."""
    return _block_exponential(None, None, matrix=matrix, length=length)


def _mean_flow(matrix, gap):
    if gap == 0:
        return torch.eye(len(matrix), dtype=matrix.dtype)
    return _flow_and_integrals(matrix, gap)[1] / gap


def _linear_score(matrix, key, start, end, knots, at_knots, known, heads):
    """Mean of ``q·k`` per head, cell by cell: ``q`` is linear on each, held outside the knots and beyond ``known``."""

    def query(t):
        t = min(max(min(float(t), float(known)), float(knots[0])), float(knots[-1]))
        right = int(torch.searchsorted(knots, t).clamp(1, max(1, len(knots) - 1)))
        if len(knots) == 1:
            return at_knots[0]
        share = (t - knots[right - 1]) / (knots[right] - knots[right - 1])
        return at_knots[right - 1] + share * (at_knots[right] - at_knots[right - 1])

    def by_head(a, b):
        return (a * b).unflatten(-1, (heads, -1)).sum(-1)

    if start == end:
        return by_head(query(end), key)
    low, high = sorted((float(start), float(end)))
    stops = sorted({t for t in (*knots.tolist(), float(known)) if low < t < high})
    stops = [float(start), *(stops if start < end else stops[::-1]), float(end)]
    total, state = 0.0, key
    for a, b in pairwise(stops):
        flow, once, twice = _flow_and_integrals(matrix, b - a)
        rise = (query(b) - query(a)) / (b - a)
        # ∫_0^r (q_a + rise s)·exp(A s) k ds, with ∫ s exp(A s) ds = r ∫ exp - ∫ (r - s) exp
        total = total + by_head(query(a), once @ state) + by_head(rise, ((b - a) * once - twice) @ state)
        state = flow @ state
    return total / (end - start)

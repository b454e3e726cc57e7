"""The spectral method against the pairwise one, and quadrature rules against their limits."""

import copy

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from contiformer.nn.heads import split_heads
from tests.problems import HEADS, WIDTH, irregular_times, largest, make_attention, normal, spaced_times

BATCH, OBS = 2, 9
RULES = [("linear", 3), *(("gauss", points) for points in range(2, 6))]
SWITCHES = ("continuous_scores", "continuous_values", "normalize_scores", "normalize_values")


def spaced_with_equal_times(n):
    times = spaced_times(n)
    times[4] = times[3]
    return times


def draw_inputs(draw_times=irregular_times):
    times = torch.stack([draw_times(OBS) for _ in range(BATCH)])
    mask = torch.ones(BATCH, OBS, dtype=torch.bool)
    mask[0, [2, 8]] = False
    queries = torch.cat([1.6 * torch.rand(BATCH, 5).double() - 0.3, times[:, :2]], dim=1)
    return normal(BATCH, OBS, WIDTH), times, queries, mask


def as_pairwise(attention, step_size):
    slow = copy.deepcopy(attention)
    slow.method, slow.step_size = "pairwise", step_size
    return slow


def every_call(x, times, queries, mask):
    for at in (None, queries):
        for shown in (None, mask):
            yield x, times, at, shown


@torch.no_grad()
def assert_same(fast, slow, tolerance, draw_times=irregular_times):
    for arguments in every_call(*draw_inputs(draw_times)):
        found, weights = fast(*arguments, return_weights=True)
        expected, expected_weights = slow(*arguments, return_weights=True)
        assert largest(found - expected) < tolerance
        assert largest(weights - expected_weights) < tolerance
    assert largest(fast(*arguments) - expected) < tolerance


@pytest.mark.parametrize(("rule", "points"), RULES)
@pytest.mark.parametrize(
    ("interpolation", "causal"),
    [("linear", False), ("cubic", False), ("hermite", True)],
    ids=["linear", "cubic", "causal"],
)
@pytest.mark.parametrize("draw_times", [irregular_times, spaced_times])
def test_spectral_equals_pairwise(rule, points, interpolation, causal, draw_times):
    attention = make_attention(
        rule=rule, points=points, interpolation=interpolation, causal=causal, degree=24, field="concat"
    )
    assert_same(attention, as_pairwise(attention, 0.1), 1e-7, draw_times)


@pytest.mark.parametrize("off", SWITCHES)
@pytest.mark.parametrize("rule", ["exact", "linear", "gauss"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_switch_means_the_same_to_both_methods(off, rule, causal):
    attention = make_attention(rule=rule, causal=causal, degree=20, field="concat", **{off: False})
    # for "exact" the pairwise solver steps over the kinks of the query path
    step_size, tolerance = (0.04, 2e-4) if rule == "exact" else (0.1, 1e-7)
    assert_same(attention, as_pairwise(attention, step_size), tolerance, spaced_with_equal_times)


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("rule", ["exact", "linear", "gauss"])
def test_every_switch_changes_the_result(switch, rule):
    x, times, queries, _ = draw_inputs()
    on, off = (make_attention(rule=rule, degree=20, **{switch: value}) for value in (True, False))
    off.load_state_dict(on.state_dict())
    assert largest(on(x, times, queries) - off(x, times, queries)) > 1e-3


@pytest.mark.parametrize("rule", ["linear", "gauss"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pieces_change_nothing(rule, normalize):
    x, times, queries, mask = draw_inputs()
    whole, cut = (
        make_attention(rule=rule, degree=24, piece_length=p, normalize_scores=normalize, normalize_values=normalize)
        for p in (10.0, 0.3)
    )
    assert largest(whole(x, times, queries, mask) - cut(x, times, queries, mask)) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("field", ["concat", "linear"])
def test_pairwise_exact_converges_to_spectral(field, causal):
    attention = make_attention(field=field, degree=24, causal=causal)
    inputs = draw_inputs(spaced_with_equal_times)
    exact = attention(*inputs)
    errors = [largest(as_pairwise(attention, h)(*inputs) - exact) for h in (0.4, 0.1, 0.025)]
    assert errors[1] < errors[0] / 4
    assert errors[2] < errors[1] / 4
    assert errors[2] < 1e-4


def discrete(attention, x, times, queries, allowed):
    """Ordinary attention on the module's projections, with the interpolated query."""
    q, k, v = (split_heads(p(x), HEADS) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    if queries is not None:
        q = torch.stack(
            [torch.stack([_numpy_interp(queries[b], times[b], q[b, h]) for h in range(HEADS)]) for b in range(len(x))]
        )
    mixed = scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return attention.out_proj(mixed.transpose(1, 2).flatten(2))


def _numpy_interp(at, times, values):
    right = torch.searchsorted(times, at).clamp(1, len(times) - 1)
    share = ((at - times[right - 1]) / (times[right] - times[right - 1])).clamp(0, 1)[:, None]
    return values[right - 1] + share * (values[right] - values[right - 1])


@pytest.mark.parametrize("method", ["spectral", "pairwise"])
@pytest.mark.parametrize("rule", ["exact", "linear", "gauss"])
@pytest.mark.parametrize("causal", [False, True])
def test_all_switches_off_is_dot_product_attention(method, rule, causal):
    attention = make_attention(
        method=method, rule=rule, causal=causal, continuous_scores=False, continuous_values=False
    )
    x, times, _, mask = draw_inputs(spaced_times)
    mask[:, 0] = True
    past = times[:, None, :] <= times[..., None] if causal else torch.ones(BATCH, OBS, OBS, dtype=torch.bool)
    found = attention(x, times)
    assert largest(found - discrete(attention, x, times, None, past[:, None])) < 1e-12
    found = attention(x, times, mask=mask)
    expected = discrete(attention, x, times, None, (past & mask[:, None])[:, None])
    assert largest((found - expected)[mask]) < 1e-12
    if not causal:
        queries = 1.6 * torch.rand(BATCH, 6).double() - 0.3
        assert largest(attention(x, times, queries) - discrete(attention, x, times, queries, None)) < 1e-12


class Still(torch.nn.Module):
    """A field in which nothing moves."""

    def forward(self, t, x):
        return torch.zeros_like(x)


@pytest.mark.parametrize("method", ["spectral", "pairwise"])
@pytest.mark.parametrize("rule", ["exact", "linear", "gauss"])
@pytest.mark.parametrize("piece_length", [1.0, 0.3])
def test_zero_field_and_constant_queries_is_dot_product_attention(method, rule, piece_length):
    attention = make_attention(method=method, rule=rule, field=Still(), piece_length=piece_length)
    x, times, queries, _ = draw_inputs(spaced_times)
    torch.nn.init.zeros_(attention.q_proj.weight)
    assert largest(attention(x, times) - discrete(attention, x, times, None, None)) < 1e-12
    assert largest(attention(x, times, queries) - discrete(attention, x, times, queries, None)) < 1e-12


@pytest.mark.parametrize("method", ["spectral", "pairwise"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("with_queries", [False, True])
def test_weights_are_shares_of_the_observed_rows_in_their_own_order(method, causal, with_queries):
    attention = make_attention(method=method, causal=causal)
    x, times, queries, mask = draw_inputs()
    at = queries if with_queries else None
    output, weights = attention(x, times, at, mask, return_weights=True)
    asked = queries if with_queries else times
    assert weights.shape == (BATCH, HEADS, asked.shape[1], OBS)
    assert torch.equal(output, attention(x, times, at, mask)) or largest(output - attention(x, times, at, mask)) < 1e-12
    allowed = mask[:, None, :].expand(-1, asked.shape[1], -1)
    if causal:
        allowed = allowed & (times[:, None] <= asked[..., None])
    if not with_queries:
        allowed = allowed & mask[..., None]
    assert torch.equal(weights > 0, allowed[:, None].expand_as(weights))
    assert largest(weights.sum(-1) - allowed.any(-1)[:, None].double()) < 1e-12


def test_weights_of_masked_rows_are_zero_in_place():
    """Taking a row out gives the same weights for the others as masking it where it stands."""
    attention = make_attention()
    x, times, queries, _ = draw_inputs()
    keep = torch.tensor([0, 1, 3, 4, 5, 7, 8])
    mask = torch.zeros(BATCH, OBS, dtype=torch.bool)
    mask[:, keep] = True
    _, masked = attention(x, times, queries, mask, return_weights=True)
    _, removed = attention(x[:, keep], times[:, keep], queries, return_weights=True)
    assert largest(masked[..., keep] - removed) < 1e-12
    assert largest(masked[..., [2, 6]]) == 0


def test_returned_weights_are_those_before_dropout():
    attention = make_attention(dropout=0.5)
    x, times, queries, _ = draw_inputs()
    _, training = attention(x, times, queries, return_weights=True)
    _, evaluation = attention.eval()(x, times, queries, return_weights=True)
    assert largest(training - evaluation) < 1e-12

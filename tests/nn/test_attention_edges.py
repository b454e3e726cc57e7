"""Edge cases and invalid arguments of ContinuousAttention."""

import copy
import pickle
import warnings

import pytest
import torch

from contiformer.nn import ContinuousAttention
from contiformer.nn.observations import Observations
from contiformer.paths.trajectories import ResolutionWarning
from tests.problems import HEADS, WIDTH, Swing, irregular_times, largest, make_attention, normal, sorted_times

METHODS = [{}, {"causal": True}, {"rule": "linear"}, {"rule": "gauss"}, {"method": "pairwise", "step_size": 0.5}]
every_method = pytest.mark.parametrize("options", METHODS, ids=lambda o: " ".join(map(str, o.values())) or "default")


def bias_of(attention, *shape):
    return attention.out_proj.bias.expand(*shape, -1)


@every_method
def test_one_observation_gives_its_own_value_at_its_own_time(options):
    attention = make_attention(**options)
    x, times = normal(2, 1, WIDTH), sorted_times(2, 1)
    assert largest(attention(x, times) - attention.out_proj(attention.v_proj(x))) < 1e-12


def test_one_observation_gives_the_mean_of_its_value_curve_elsewhere():
    attention = make_attention(field="linear", degree=24)
    x, times = normal(1, 1, WIDTH), torch.tensor([[0.3]], dtype=torch.float64)
    matrix, gap = attention.value_field.weight, 0.5
    identity = torch.eye(WIDTH, dtype=torch.float64)
    mean = torch.linalg.solve(matrix * gap, torch.linalg.matrix_exp(matrix * gap) - identity)
    expected = attention.out_proj(attention.v_proj(x) @ mean.T)
    assert largest(attention(x, times, times + gap) - expected) < 1e-9


@every_method
def test_no_observations_give_the_bias(options):
    attention = make_attention(**options)
    x, times, queries = normal(2, 0, WIDTH), torch.zeros(2, 0), torch.rand(2, 3)
    output, weights = attention(x, times, queries, return_weights=True)
    assert torch.equal(output, bias_of(attention, 2, 3))
    assert weights.shape == (2, HEADS, 3, 0)
    assert attention(x, times).shape == (2, 0, WIDTH)


@every_method
def test_no_queries_give_no_answers(options):
    attention = make_attention(**options)
    output, weights = attention(normal(2, 4, WIDTH), sorted_times(2, 4), torch.zeros(2, 0), return_weights=True)
    assert output.shape == (2, 0, WIDTH)
    assert weights.shape == (2, HEADS, 0, 4)
    assert attention(normal(2, 4, WIDTH), sorted_times(2, 4), torch.zeros(2, 0)).shape == (2, 0, WIDTH)


@every_method
@pytest.mark.parametrize("obs", [0, 4])
@pytest.mark.parametrize("queries", [None, 0, 3])
def test_no_sequences_give_no_answers(options, obs, queries):
    attention = make_attention(**options)
    at = None if queries is None else torch.zeros(0, queries)
    output, weights = attention(normal(0, obs, WIDTH), torch.zeros(0, obs), at, return_weights=True)
    asked = obs if queries is None else queries
    assert output.shape == (0, asked, WIDTH)
    assert weights.shape == (0, HEADS, asked, obs)


@every_method
@pytest.mark.parametrize("far", [0.0, 1e5], ids=["near", "far"])
def test_sequence_with_all_rows_masked_gives_the_bias_at_queries_and_zero_at_its_rows(options, far):
    attention = make_attention(**options)
    x, times = normal(2, 4, WIDTH), sorted_times(2, 4)
    mask = torch.tensor([[False] * 4, [True] * 4])
    queries = torch.rand(2, 3, dtype=torch.float64)
    queries[0] += far
    output, weights = attention(x, times, queries, mask, return_weights=True)
    assert torch.equal(output[0], bias_of(attention, 3))
    assert torch.equal(weights[0], torch.zeros_like(weights[0]))
    assert largest(output[1] - attention(x[1:], times[1:], queries[1:])[0]) < 1e-6
    at_rows = attention(x, times, mask=mask)
    assert torch.equal(at_rows[0], torch.zeros_like(at_rows[0]))
    assert at_rows[1].abs().min() > 0


def test_query_before_the_first_observation_of_a_causal_model_gets_the_bias():
    attention = make_attention(causal=True)
    x, times = normal(2, 4, WIDTH), sorted_times(2, 4)
    output, weights = attention(x, times, times[:, :1] - 0.1, return_weights=True)
    assert torch.equal(output, bias_of(attention, 2, 1))
    assert torch.equal(weights, torch.zeros_like(weights))


@every_method
def test_all_observations_at_one_time(options):
    """No time passes between them, so it is ordinary attention with the mean of the queries."""
    attention = make_attention(**options)
    x, times = normal(1, 5, WIDTH), torch.full((1, 5), 0.4, dtype=torch.float64)
    q, k, v = (p(x)[0].unflatten(-1, (HEADS, -1)) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    weights = (torch.einsum("hd,nhd->hn", q.mean(0), k) * (WIDTH // HEADS) ** -0.5).softmax(-1)
    expected = attention.out_proj(torch.einsum("hn,nhd->hd", weights, v).flatten())
    assert largest(attention(x, times) - expected) < 1e-12
    assert largest(attention(x, times, times[:, :1]) - expected) < 1e-12


@pytest.mark.parametrize("far", [30.0, 300.0, 3e3, 1e6])
def test_a_far_query_warns_if_it_lowers_the_accuracy_of_others(far):
    attention = make_attention()
    x, times = normal(1, 6, WIDTH), sorted_times(1, 6)
    queries = torch.tensor([[0.5, far]], dtype=torch.float64)
    near = attention(x, times, queries[:, :1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResolutionWarning)
        output = attention(x, times, queries)
    assert output.isfinite().all()
    told = any(issubclass(warning.category, ResolutionWarning) for warning in caught)
    assert told or largest(output[:, :1] - near) < 1e-3 * largest(near)


def test_a_far_query_does_not_change_other_answers_of_a_causal_model():
    attention = make_attention(causal=True)
    x, times = normal(1, 6, WIDTH), sorted_times(1, 6)
    queries = torch.tensor([[0.5, 100.0]], dtype=torch.float64)
    assert largest(attention(x, times, queries)[:, :1] - attention(x, times, queries[:, :1])) < 1e-8


def valid_call():
    return {"x": normal(2, 4, WIDTH), "times": sorted_times(2, 4)}


def with_entry(tensor, value):
    changed = tensor.clone()
    changed[1, 2] = value
    return changed


BAD_CALLS = [
    ("times", lambda c: {"times": with_entry(c["times"], torch.nan)}),
    ("times", lambda c: {"times": with_entry(c["times"], torch.inf)}),
    ("times", lambda c: {"times": with_entry(c["times"], -torch.inf)}),
    ("times", lambda c: {"times": c["times"].flip(1)}),
    ("times", lambda c: {"times": c["times"][:, :3]}),
    ("times", lambda c: {"times": c["times"][:1]}),
    ("times", lambda c: {"times": c["times"][0]}),
    ("times", lambda c: {"times": c["times"] > 0.5}),
    ("times", lambda c: {"times": c["times"].flip(1), "mask": torch.tensor([True, False, True, True]).expand(2, -1)}),
    ("query_times", lambda c: {"query_times": with_entry(c["times"], torch.nan)}),
    ("query_times", lambda c: {"query_times": with_entry(c["times"], torch.inf)}),
    ("query_times", lambda c: {"query_times": c["times"][0]}),
    ("query_times", lambda c: {"query_times": c["times"][:1]}),
    ("x", lambda c: {"x": c["x"][..., :-1]}),
    ("x", lambda c: {"x": c["x"][0]}),
    ("mask", lambda c: {"mask": torch.ones(2, 3, dtype=torch.bool)}),
    ("mask", lambda c: {"mask": torch.ones(2, 4, 1, dtype=torch.bool)}),
    ("mask", lambda c: {"mask": torch.ones(2, 4)}),
    ("mask", lambda c: {"mask": torch.ones(2, 4, dtype=torch.long)}),
]


@pytest.mark.no_array_checks
@pytest.mark.parametrize(("argument", "change"), BAD_CALLS)
@pytest.mark.parametrize("method", ["spectral", "pairwise"])
def test_bad_argument_of_a_call_is_refused_by_name(argument, change, method):
    call = valid_call()
    attention = make_attention(method=method, step_size=0.5)
    attention(**call)
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        attention(**(call | change(call)))


def test_message_about_times_says_where():
    call = valid_call()
    with pytest.raises(ValueError, match="sequence 1 at position 2"):
        make_attention()(call["x"], with_entry(call["times"], torch.nan))


BAD_OPTIONS = [
    ("n_heads", {"n_heads": 3}),
    ("n_heads", {"n_heads": 0}),
    ("n_heads", {"n_heads": -2}),
    ("rule", {"rule": "simpson"}),
    ("points", {"rule": "gauss", "points": 1}),
    ("points", {"rule": "gauss", "points": 6}),
    ("interpolation", {"interpolation": "quadratic"}),
    ("field", {"field": "mlp"}),
    ("field", {"field": 3}),
    ("activation", {"activation": "relu"}),
    ("method", {"method": "fast"}),
    ("degree", {"degree": 0}),
    ("degree", {"degree": -3}),
    ("degree", {"degree": 7.5}),
    ("degree", {"degree": True}),
    ("degree", {"degree": "high"}),
    ("step_size", {"step_size": 0.0}),
    ("step_size", {"step_size": -0.1}),
    ("step_size", {"step_size": 2.5}),
    ("step_size", {"step_size": float("nan")}),
    ("piece_length", {"piece_length": 0.0}),
    ("piece_length", {"piece_length": -1.0}),
    ("piece_length", {"piece_length": float("nan")}),
    ("dropout", {"dropout": -0.1}),
    ("dropout", {"dropout": 1.0}),
]


@pytest.mark.parametrize(("option", "options"), BAD_OPTIONS, ids=str)
def test_bad_option_is_refused_by_name(option, options):
    with pytest.raises(ValueError, match=rf"\b{option}\b"):
        ContinuousAttention(WIDTH, **({"n_heads": HEADS} | options))


@pytest.mark.parametrize("causal", [False, True])
def test_infinite_piece_length_is_one_piece_or_refused(causal):
    try:
        attention = make_attention(causal=causal, piece_length=float("inf"))
    except ValueError as error:
        assert "piece_length" in str(error)  # noqa: PT017
    else:
        assert attention(normal(1, 4, WIDTH), sorted_times(1, 4)).isfinite().all()


def test_times_may_be_integers():
    attention = make_attention(piece_length=20.0, degree=31, field="linear")
    with torch.no_grad():
        attention.key_field.weight.mul_(0.1), attention.value_field.weight.mul_(0.1)
    x, times = normal(1, 4, WIDTH), torch.tensor([[0, 1, 5, 9]])
    assert torch.equal(attention(x, times, times + 1), attention(x, times.double(), times.double() + 1))


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_dict_round_trips(options, dtype):
    attention = make_attention(**options).to(dtype)
    other = make_attention(seed=1, **options).to(dtype)
    x, times = normal(1, 5, WIDTH).to(dtype), sorted_times(1, 5)
    assert not torch.equal(attention(x, times), other(x, times))
    other.load_state_dict(pickle.loads(pickle.dumps(attention.state_dict())))
    assert torch.equal(attention(x, times), other(x, times))


@every_method
def test_copy_gives_the_same_and_is_independent(options):
    attention = make_attention(**options)
    x, times = normal(1, 5, WIDTH), sorted_times(1, 5)
    twin = copy.deepcopy(attention)
    expected = attention(x, times)
    assert torch.equal(twin(x, times), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(attention(x, times), expected)


@every_method
@pytest.mark.parametrize("with_queries", [False, True])
def test_dtypes_go_through(options, with_queries):
    attention = make_attention(**options)
    x, times = normal(2, 5, WIDTH), sorted_times(2, 5)
    queries = torch.rand(2, 3) if with_queries else None
    exact = attention(x, times, queries)
    assert exact.dtype == torch.float64
    attention.float()
    rounded = attention(x.float(), times.float(), queries)
    assert rounded.dtype == torch.float32
    assert largest(rounded - exact) < 1e-4


@every_method
@pytest.mark.parametrize("with_queries", [False, True])
def test_autocast_stays_close_to_float32(options, with_queries):
    attention = make_attention(**options).float()
    x, times = normal(2, 70, WIDTH).float(), sorted_times(2, 70)
    queries = torch.rand(2, 3) if with_queries else None
    expected = attention(x, times, queries)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, weights = attention(x, times, queries, return_weights=True)
        fast = attention(x, times, queries)
    assert found.dtype == fast.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    assert largest(found - expected) < 0.03 * largest(expected)
    assert largest(fast - expected) < 0.03 * largest(expected)
    fast.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in attention.parameters() if p.grad is not None)


@every_method
def test_any_module_can_be_the_field(options):
    field = Swing(0.7)
    attention = make_attention(field=field, **options)
    assert attention.key_field is not attention.value_field is not field
    x, times = normal(2, 5, WIDTH), sorted_times(2, 5)
    attention(x, times, torch.rand(2, 3)).sum().backward()
    assert attention.key_field.speed.grad.abs() > 0
    assert attention.value_field.speed.grad.abs() > 0
    assert field.speed.grad is None


def test_field_receives_the_time_itself_beside_the_state():
    class Recorder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, t, x):
            assert t.shape[-1] == 1
            assert torch.broadcast_shapes(t.shape, x.shape) == x.shape
            self.seen.append((float(t.min()), float(t.max())))
            return torch.zeros_like(x)

    attention = make_attention(field=Recorder())
    attention(normal(2, 5, WIDTH), 5 + irregular_times(5).expand(2, -1))
    lows, highs = zip(*attention.key_field.seen)
    assert 5 <= min(lows) < max(highs) <= 6


def test_values_that_are_not_finite_are_refused_unless_masked():
    attention = ContinuousAttention(8, 2)
    x, times = torch.randn(2, 5, 8), torch.rand(2, 5).sort().values
    x[1, 3, 2] = torch.nan
    with pytest.raises(ValueError, match="x must be finite, it is not in sequence 1 at position 3"):
        attention(x, times)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3] = False
    assert attention(x, times, mask=mask).isfinite().all()
    # the sum overflows, the values do not
    assert Observations.of(torch.full((1, 4, 8), 3e38), times[:1, :4], None, None).complete


@pytest.mark.parametrize(
    "options", [{"degree": 7}, {"degree": 7, "causal": True}, {"method": "pairwise", "rule": "linear"}]
)
def test_a_buffer_of_times_may_be_used_again_before_the_backward_pass(options):
    torch.manual_seed(0)
    attention = ContinuousAttention(8, 2, **options)
    x, times = torch.randn(2, 5, 8, requires_grad=True), torch.rand(2, 5, dtype=torch.float64).sort().values
    expected = torch.autograd.grad(attention(x, times).square().sum(), x)[0]
    buffer = times.clone()
    output = attention(x, buffer)
    buffer.mul_(0.3)
    assert torch.equal(torch.autograd.grad(output.square().sum(), x)[0], expected)

"""Invariances of attention: padding, batch mates, order of ties and queries, causality."""

import pytest
import torch

from contiformer.nn import ContinuousAttention
from contiformer.paths.trajectories import EMPTY_PIECES, ResolutionWarning
from tests.problems import HEADS, WIDTH, irregular_times, largest, make_attention, normal, sorted_times, spaced_times

OPTIONS = [
    {},
    {"causal": True},
    {"interpolation": "hermite", "causal": True, "piece_length": 0.3},
    {"interpolation": "cubic"},
    {"piece_length": 0.3},
    {"rule": "linear"},
    {"rule": "gauss", "causal": True},
    {"normalize_values": False, "piece_length": 0.3},
    {"method": "pairwise", "step_size": 0.5},
    {"method": "pairwise", "step_size": 0.5, "causal": True},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(map(str, o.values())) or "default")
both_precisions = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
in_both_places = pytest.mark.parametrize("anywhere", [False, True], ids=["at the knots", "anywhere"])
INVARIANT = 1e-6


def make(dtype=torch.float64, **options):
    return make_attention(**options).to(dtype).eval()


def some_queries(batch):
    return 1.6 * torch.rand(batch, 7, dtype=torch.float64) - 0.3


def with_garbage(x, times, positions):
    """The same rows at the given positions of a longer sequence, nonsense in the others, and the mask that tells."""
    batch, obs, width = x.shape
    length = obs + 4
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[:, positions] = True
    long_x = torch.full((batch, length, width), torch.nan, dtype=x.dtype)
    long_times = torch.tensor([torch.nan, torch.inf, -1e30, 0.5]).repeat(batch, -(-length // 4))[:, :length].double()
    long_x[:, positions], long_times[:, positions] = x, times
    return long_x, long_times, mask


@every_option
@both_precisions
@pytest.mark.parametrize("where", ["behind", "in front", "in between"])
def test_padding_does_not_matter(options, dtype, where):
    attention = make(dtype, **options)
    x, times = normal(2, 6, WIDTH).to(dtype), torch.stack([irregular_times(6) for _ in range(2)])
    positions = {"behind": range(6), "in front": range(4, 10), "in between": (0, 2, 3, 6, 7, 9)}[where]
    positions = torch.tensor(list(positions))
    long_x, long_times, mask = with_garbage(x, times, positions)
    for queries in (None, some_queries(2)):
        short, weights = attention(x, times, queries, return_weights=True)
        long, long_weights = attention(long_x, long_times, queries, mask, return_weights=True)
        if queries is None:
            assert torch.equal(long[~mask], torch.zeros_like(long[~mask]))
            long, long_weights = long[:, positions], long_weights[:, :, positions]
        assert largest(long - short) < INVARIANT
        assert largest(long_weights[..., positions] - weights) < INVARIANT
        assert largest(long_weights.sum(-1) - weights.sum(-1)) < INVARIANT


@every_option
@both_precisions
@in_both_places
def test_batch_mates_do_not_matter(options, dtype, anywhere):
    """Mates of other lengths and other spans: they need more pieces, and their queries lie in other blocks."""
    attention = make(dtype, **options)
    obs = 70
    # in float32, slopes between times 1e-6 apart would only show how they amplify rounding
    draw_times = irregular_times if dtype == torch.float64 else spaced_times
    x, times = normal(4, obs, WIDTH).to(dtype), torch.stack([draw_times(obs) for _ in range(4)])
    times[1] *= 3.7
    times[2] = 0.2 + 0.1 * times[2]
    mask = torch.arange(obs) < torch.tensor([obs, 40, 9, 1])[:, None]
    queries = torch.cat([some_queries(4), times[:, -1:], times[:, :1]], dim=1) if anywhere else None
    if anywhere:
        queries[3] += 2
    together = attention(x, times, queries, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        at = None if queries is None else queries[row : row + 1]
        alone = attention(x[row : row + 1, :length], times[row : row + 1, :length], at)
        assert largest(together[row, : alone.shape[1]] - alone[0]) < INVARIANT


class Chirp(torch.nn.Module):
    """Derivative of ``sin(speed t²)``: the later, the faster."""

    def __init__(self, speed):
        super().__init__()
        self.speed = speed

    def forward(self, t, x):
        return (2 * self.speed * t * torch.cos(self.speed * t**2)).expand_as(x)


@both_precisions
@in_both_places
def test_batch_mate_that_needs_a_higher_degree_does_not_matter(dtype, anywhere):
    attention = make(dtype, field=Chirp(4.0))
    x, times = normal(2, 8, WIDTH).to(dtype), sorted_times(2, 8)
    times[0] = 0.2 * times[0]
    times[1] = 1.5 + 0.4 * times[1]
    queries = times + 0.01 if anywhere else None
    low_degree = make(dtype, field=Chirp(4.0), degree=7)
    with pytest.warns(ResolutionWarning):
        unresolved = low_degree(x[1:], times[1:], None if queries is None else queries[1:])
    together = attention(x, times, queries)
    alone = [attention(x[[n]], times[[n]], None if queries is None else queries[[n]])[0] for n in range(2)]
    assert largest(together[0] - alone[0]) < INVARIANT
    assert largest(together[1] - alone[1]) < INVARIANT
    assert largest(alone[1] - unresolved[0]) > 10 * INVARIANT


@every_option
@both_precisions
@in_both_places
def test_order_of_rows_at_equal_times_does_not_matter(options, dtype, anywhere):
    attention = make(dtype, **options)
    x = normal(2, 8, WIDTH).to(dtype)
    times = torch.tensor([0.1, 0.3, 0.3, 0.3, 0.6, 0.8, 0.8, 0.9], dtype=torch.float64).expand(2, -1)
    swap = torch.tensor([0, 3, 1, 2, 4, 6, 5, 7])
    queries = some_queries(2) if anywhere else None
    found, changed = attention(x, times, queries), attention(x[:, swap], times, queries)
    expected = found if anywhere else found[:, swap]
    assert largest(changed - expected) < INVARIANT


@every_option
@both_precisions
def test_order_of_queries_does_not_matter(options, dtype):
    attention = make(dtype, **options)
    x, times = normal(2, 70, WIDTH).to(dtype), sorted_times(2, 70)
    queries = torch.cat([some_queries(2), times[:, ::9]], dim=1)
    shuffle = torch.randperm(queries.shape[1])
    assert largest(attention(x, times, queries[:, shuffle]) - attention(x, times, queries)[:, shuffle]) < INVARIANT


@both_precisions
def test_a_query_alone_gives_the_same_answer(dtype):
    attention = make(dtype)
    x, times, queries = normal(2, 20, WIDTH).to(dtype), sorted_times(2, 20), some_queries(2)
    company = attention(x, times, queries)
    for number in range(queries.shape[1]):
        # the window that the series have to resolve is another one
        assert largest(attention(x, times, queries[:, [number]]) - company[:, [number]]) < 1e-3 * largest(company)


CAUSAL = [
    {},
    {"interpolation": "hermite"},
    {"piece_length": 0.3},
    {"rule": "linear"},
    {"rule": "gauss"},
    {"field": "concat", "normalize_scores": False},
    {"field": "linear", "piece_length": 0.3, "normalize_values": False},
    {"continuous_scores": False},
    {"method": "pairwise", "step_size": 0.5},
]
every_causal_option = pytest.mark.parametrize(
    "options", CAUSAL, ids=lambda o: " ".join(map(str, o.values())) or "default"
)


@every_causal_option
@both_precisions
@pytest.mark.parametrize("obs", [12, 70])
@in_both_places
def test_later_values_do_not_change_causal_outputs(options, dtype, obs, anywhere):
    attention = make(dtype, causal=True, **options)
    x, times = normal(2, obs, WIDTH).to(dtype), irregular_times(obs).expand(2, -1)
    first_changed = 2 * obs // 3
    changed = x.clone()
    changed[:, first_changed:] = 30 * normal(2, obs - first_changed, WIDTH).to(dtype)
    queries = torch.rand(2, 40, dtype=torch.float64) if anywhere else None
    asked = queries if anywhere else times
    earlier = asked < times[:, first_changed : first_changed + 1]
    before, after = attention(x, times, queries), attention(changed, times, queries)
    assert torch.equal(before[earlier], after[earlier])
    assert not torch.equal(before[~earlier], after[~earlier])


def changes_of_later_times(times, since):
    """The same up to ``since``: later times moved, more of them, and none at all; how many stay comparable."""
    early, late = times[:, :since], times[:, since:]
    last = early[:, -1:]
    stretched = last + 1.37 * (late - last) + 0.01
    added = torch.cat([late, late[:, -1:] + 0.3, late[:, -1:] + 2.6], dim=1)
    return {"moved": torch.cat([early, stretched], 1), "added": torch.cat([early, added], 1), "removed": early}


@every_causal_option
@pytest.mark.parametrize(("dtype", "degree", "bound"), [(torch.float32, "auto", 1e-5), (torch.float64, 24, 1e-8)])
@in_both_places
def test_later_times_do_not_leak(options, dtype, degree, bound, anywhere):
    attention = make(dtype, causal=True, degree=degree, **options)
    x, times = normal(2, 80, WIDTH).to(dtype), sorted_times(2, 80)
    since = 66
    queries = times[:, since - 1 : since] * torch.rand(2, 20, dtype=torch.float64) if anywhere else None
    before = attention(x[:, : times.shape[1]], times, queries)
    for other_times in changes_of_later_times(times, since).values():
        other_x = torch.cat([x[:, :since], normal(2, 60, WIDTH).to(dtype)], 1)[:, : other_times.shape[1]]
        after = attention(other_x, other_times, queries)
        assert largest(after[:, :since] - before[:, :since]) <= bound


@pytest.mark.parametrize("beyond", [1e-9, 5e-7, 1e-3])
@in_both_places
def test_a_later_time_does_not_change_what_lies_just_beyond_the_edge_of_a_piece(beyond, anywhere):
    attention = make(causal=True, degree=24)
    x, times = normal(1, 6, WIDTH), torch.tensor([[0, 0.3, 0.5, 0.8, 1 + beyond, 1.5]], dtype=torch.float64)
    queries = times[:, :5] if anywhere else None
    short, long = attention(x[:, :5], times[:, :5], queries), attention(x, times, queries)
    assert largest(long[:, :5] - short) < 1e-8


@both_precisions
def test_later_queries_do_not_change_the_answers_of_a_causal_model(dtype):
    attention = make(dtype, causal=True)
    x, times, queries = normal(2, 20, WIDTH).to(dtype), sorted_times(2, 20), some_queries(2)
    later = torch.cat([queries, queries[:, :2] + 7], dim=1)
    assert largest(attention(x, times, later)[:, :7] - attention(x, times, queries)) < 1e-5


def test_cubic_interpolation_is_not_causal_and_says_so():
    with pytest.raises(ValueError, match=r"interpolation='cubic'.*causal"):
        ContinuousAttention(WIDTH, HEADS, interpolation="cubic", causal=True)


@pytest.mark.parametrize("shift", [1e9, -1e9, 1e6])
@pytest.mark.parametrize("causal", [False, True])
def test_origin_of_time_does_not_matter_to_a_field_that_does_not_know_time(shift, causal):
    """In float32, with times in float64: differences are taken before anything is rounded."""
    attention = make(torch.float32, field="linear", causal=causal)
    x, times = normal(2, 20, WIDTH).float(), sorted_times(2, 20)
    far = times + shift
    near = far - shift
    assert largest(attention(x, far) - attention(x, near)) < 1e-5
    queries = some_queries(2) + shift
    assert largest(attention(x, far, queries) - attention(x, near, queries - shift)) < 1e-5


@pytest.mark.filterwarnings("ignore::contiformer.paths.trajectories.ResolutionWarning")
@pytest.mark.parametrize("scale", [1e3, 1e9])
@pytest.mark.parametrize("field", ["concat", "concatnorm"])
@both_precisions
def test_huge_raw_times_give_finite_numbers(scale, field, dtype):
    attention = make(dtype, field=field)
    x, times, queries = normal(1, 5, WIDTH).to(dtype), scale * sorted_times(1, 5), scale * some_queries(1)
    x.requires_grad_()
    for at in (None, queries):
        output = attention(x, times, at)
        assert output.isfinite().all()
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert gradient.isfinite().all()


def test_cost_of_a_causal_model_follows_observations_not_time():
    attention = make(causal=True)
    times = torch.linspace(0, 1000, 17, dtype=torch.float64)[None]
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        assert attention(normal(1, 17, WIDTH), times).isfinite().all()
    assert max(sizes) < 17 * 17 * (EMPTY_PIECES + 2) * 12 * WIDTH * 4


def test_too_many_pieces_and_numbers_are_refused_before_they_are_computed():
    attention = make(causal=True, piece_length=1e-3)
    with pytest.raises(ValueError, match="piece_length"):
        attention(normal(1, 9000, WIDTH), torch.linspace(0, 9000, 9000)[None])
    with pytest.raises(ValueError, match="numbers"):
        make(causal=True)(normal(1, 4000, WIDTH), torch.linspace(0, 4000, 4000)[None])

"""The attention kernel against separate PyTorch passes, at the knots and elsewhere."""

import pytest
import torch

from contiformer.native import library as native
from contiformer.native.attention import BITS
from contiformer.nn import ContinuousAttention, fused_knots, knot_attention
from contiformer.nn.attention_inputs import Keys
from contiformer.nn.heads import split_heads
from contiformer.nn.rules import AttentionRule
from contiformer.nn.spectral import spectral_attention
from contiformer.paths.interpolation import interpolate
from contiformer.paths.trajectories import Pieces, window_pieces

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

HEADS = 3
NAMES = ("query", "key", "key series", "value series")


#: Query times, given those of the keys.
QUERIES = {
    "anywhere": lambda times: 2 * torch.rand(len(times), 23, dtype=torch.float64) - 0.5,
    "sorted": lambda times: torch.rand(len(times), 40, dtype=torch.float64).sort().values,
    "one": lambda times: torch.full((len(times), 1), 0.4, dtype=torch.float64),
    "at keys": lambda times: times.flip(1),
    # twice the same, at the first and last key, and next to keys
    "ties": lambda times: torch.cat([times, times[:, :1], times[:, -1:], times + 1e-9, times[:, :1] * 0 + 0.5], 1),
}


class Case:
    """Random queries, keys and series at random times, and the gradients of a random direction."""

    def __init__(
        self,
        length,
        *,
        batch=2,
        terms=8,
        dk=4,
        masked=False,
        interpolation="linear",
        dtype=torch.float32,
        queries=None,
        piece=1.5,
    ):
        torch.manual_seed(length)
        times = torch.rand(batch, length, dtype=torch.float64).sort().values
        self.valid = None
        lengths = torch.full((batch,), length)
        if masked:
            lengths = torch.randint(1, length + 1, (batch,))
            self.valid = torch.arange(length) < lengths[:, None]
            # padding repeats the last time; one sequence has nothing to attend to
            times = torch.where(self.valid, times, times.gather(1, lengths[:, None] - 1))
            self.valid[1] = False
        self.times, self.interpolation, self.lengths = times, interpolation, lengths
        self.queries = None if queries is None else QUERIES[queries](times)
        asked = times if self.queries is None else torch.cat([times, self.queries], 1)
        self.pieces = window_pieces(asked.amin(1), asked.amax(1), piece, 64)

        def learned(*shape):
            return torch.randn(*shape, dtype=dtype, requires_grad=True)

        self.query, self.key = learned(batch, length, HEADS * dk), learned(batch, length, HEADS * dk)
        self.series = [learned(batch, HEADS, length, self.pieces.count, terms, dk) for _ in range(2)]
        rows = length if self.queries is None else self.queries.shape[1]
        self.direction = torch.randn(batch, HEADS, rows, dk, dtype=dtype)
        if self.valid is not None and self.queries is None:
            # nobody reads what a masked row attends to
            self.direction *= self.valid[:, None, :, None]

    def attend(self, *, keep_weights=None, **options):
        path = interpolate(self.interpolation, self.times, self.query, self.lengths)
        key = split_heads(self.key, HEADS)
        keys = Keys(self.times, self.valid, key, key.detach(), *self.series, self.pieces)
        rule = AttentionRule(**options)
        if keep_weights is not None:
            assert fused_knots.applies(path, keys, self.queries, rule)
            return fused_knots.fused_attention(path, keys, self.queries, rule, keep_weights)
        return spectral_attention(path, keys, self.queries, rule, distinct=True)[0]

    def gradients(self, out):
        return torch.autograd.grad(out, [self.query, self.key, *self.series], self.direction)

    def results(self, **options):
        out = self.attend(**options)
        return out.detach(), *self.gradients(out)


def assert_same(found, expected, valid=None):
    out, *gradients = found
    expected_out, *expected_gradients = expected
    if valid is not None:
        out, expected_out = (x * valid[:, None, :, None] for x in (out, expected_out))
    torch.testing.assert_close(out, expected_out, atol=1e-5, rtol=1e-5)
    for name, mine, theirs in zip(NAMES, gradients, expected_gradients, strict=True):
        error = float((mine - theirs).norm() / theirs.norm().clamp(min=1e-6))
        assert error < 1e-5, (name, error)


def assert_equals_torch(case, without_kernels):
    """The kernel takes this case, and gives what PyTorch gives step by step."""
    out = case.attend(keep_weights=True)
    found = (out.detach(), *case.gradients(out))
    without_kernels()
    assert_same(found, case.results(), case.valid if case.queries is None else None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 34, 150, 256])
def test_equals_torch(length, masked, causal, without_kernels):
    case = Case(length, masked=masked)
    found = case.results(causal=causal)
    without_kernels()
    assert_same(found, case.results(causal=causal), case.valid)


@pytest.mark.parametrize("piece", [9.0, 0.6, 0.13], ids=["one piece", "few pieces", "many pieces"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [None, *QUERIES])
@pytest.mark.parametrize("length", [1, 2, 9, 60])
def test_queries_at_other_times_equal_torch(length, queries, masked, piece, without_kernels):
    case = Case(length, queries=queries, masked=masked, piece=piece)
    assert_equals_torch(case, without_kernels)


@pytest.mark.parametrize("piece", [9.0, 0.07])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [None, *QUERIES])
@pytest.mark.parametrize("interpolation", ["cubic", "hermite"])
def test_curved_paths_equal_torch(interpolation, queries, masked, piece, without_kernels):
    case = Case(17, queries=queries, masked=masked, piece=piece, interpolation=interpolation)
    assert (case.pieces.count > 1) == (piece < 1)
    assert_equals_torch(case, without_kernels)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize(("terms", "dk"), [(8, 16), (12, 1), (16, 8), (2, 3), (6, 5), (32, 2)])
def test_any_width_equals_torch(terms, dk, interpolation, without_kernels):
    case = Case(13, terms=terms, dk=dk, interpolation=interpolation)
    found = case.results()
    without_kernels()
    assert_same(found, case.results())


@pytest.mark.parametrize(("queries", "piece"), [(None, 1.5), ("anywhere", 1.5), ("ties", 0.3), (None, 0.3)])
@pytest.mark.parametrize("length", [5, 34])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_recomputed_weights_equal_the_stored_ones(interpolation, length, queries, piece):
    case = Case(length, queries=queries, piece=piece, interpolation=interpolation)
    results = []
    for keep_weights in (True, False):
        torch.manual_seed(1)
        results.append(case.results(keep_weights=keep_weights, dropout=0.3))
    for kept, found in zip(*results, strict=True):
        assert torch.equal(kept, found)


def test_a_fully_masked_sequence_gives_zero():
    out = Case(9, masked=True).attend()
    assert float(out[1].detach().abs().max()) == 0.0


@pytest.mark.parametrize(("queries", "piece"), [(None, 1.5), ("sorted", 1.5), ("sorted", 0.3), (None, 0.3)])
@pytest.mark.parametrize("interpolation", ["linear", "hermite"])
def test_result_does_not_depend_on_batch_mates_or_threads(interpolation, queries, piece):
    case = Case(34, batch=6, queries=queries, piece=piece, interpolation=interpolation)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(case.results(keep_weights=True))
        for one, several in zip(*results, strict=True):
            assert torch.equal(one, several)
    finally:
        torch.set_num_threads(before)
    whole = case.attend()
    names = ("times", "query", "key", "lengths", "direction", *(["queries"] if queries else []))
    for name in names:
        setattr(case, name, getattr(case, name)[3:4])
    case.series = [series[3:4] for series in case.series]
    case.pieces = Pieces(case.pieces.edges[3:4])
    assert torch.equal(case.attend(), whole[3:4])


@pytest.mark.parametrize("asked", [False, True])
def test_tracing_leaves_no_tracers_in_the_cache(asked):
    attention = ContinuousAttention(8, 2, field="linear")
    x, times = torch.randn(2, 6, 8), torch.rand(2, 6).sort().values
    queries = torch.rand(2, 3) if asked else None
    expected = attention(x, times, queries)
    fused_knots._quadrature.cache_clear()
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda given: attention(given, times, queries).sum())(x)
    assert torch.equal(attention(x, times, queries), expected)
    if queries is not None:
        given = (x, times, queries)
        traced = torch.jit.trace(attention.requires_grad_(False), given, check_trace=False)
        torch.testing.assert_close(traced(*given), expected.detach(), atol=1e-5, rtol=1e-5)


def masks(seed, items, length, share):
    """The generator of attention.c in PyTorch: factors [items, length, length]."""

    def times64(x, factor):
        return x * (factor - 2**64 if factor >= 2**63 else factor)

    def shifted(x, bits):
        return (x >> bits) & (2 ** (64 - bits) - 1)

    def scrambled(counter):
        x = times64(counter, 0x9E3779B97F4A7C15)
        x = times64(x ^ shifted(x, 30), 0xBF58476D1CE4E5B9)
        x = times64(x ^ shifted(x, 27), 0x94D049BB133111EB)
        return x ^ shifted(x, 31)

    low = 2**32 - 1
    keys = scrambled(seed + scrambled(torch.arange(items * length) + 1))
    first, second = (part[:, None] & low for part in (keys, shifted(keys, 32)))
    x = (torch.arange(length) * 0x9E3779B9 + first) & low
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & low
    x = ((x ^ (x >> 15) ^ second) * 0x846CA68B) & low
    x = x ^ (x >> 16)
    dropped = round(share * 2**BITS)
    return ((x >> (32 - BITS)) >= dropped).float().div_(1 - dropped / 2**BITS).view(items, length, length)


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("length", [5, 34, 150])
def test_dropout_equals_torch_with_the_same_mask(length, share, without_kernels, monkeypatch):
    case = Case(length)
    torch.manual_seed(5)
    seed = int(torch.randint(2**62, ()))
    torch.manual_seed(5)
    found = case.results(dropout=share)
    without_kernels()
    mask = masks(seed, 2 * HEADS, length, share)
    monkeypatch.setattr(knot_attention.KnotProblem, "kept", lambda self, number, like: mask)
    assert_same(found, case.results(dropout=share))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_of_every_row_column_and_pair(share):
    items, length = 128, 64
    dropped = (masks(1234567, items, length, share) == 0).double()
    deviation = (share * (1 - share)) ** 0.5
    assert float(dropped.mean()) == pytest.approx(share, abs=4 * deviation / dropped.numel() ** 0.5)
    for axes in ((0, 1), (0, 2), (1, 2)):
        sums = (dropped - share).sum(axes)
        normal = sums / (deviation * (dropped.numel() / sums.numel()) ** 0.5)
        assert float(normal.abs().max()) < 4.5
    # neighbours in a row, in a column, in the next head, and in the next call
    centred = (dropped - share) / deviation
    following = (masks(1234568, items, length, share) == 0).double().sub(share).div(deviation)
    others = [centred.roll(1, axis) for axis in range(3)] + [centred.roll((1, 1), (1, 2)), following]
    for other in others:
        assert float((centred * other).mean()) == pytest.approx(0.0, abs=4.5 / centred.numel() ** 0.5)


@pytest.mark.parametrize(("queries", "piece"), [(None, 1.5), ("anywhere", 0.4)])
def test_dropout_keeps_the_mean_and_follows_the_seed(queries, piece):
    case = Case(20, queries=queries, piece=piece)
    expected = case.attend().detach()
    torch.manual_seed(0)
    attempts = torch.stack([case.attend(dropout=0.2).detach() for _ in range(400)])
    error = (attempts.mean(0) - expected) / attempts.std(0).clamp(min=1e-6) * 20
    assert float(error.abs().mean()) < 1.0
    assert float(error.abs().max()) < 5.0
    torch.manual_seed(0)
    assert torch.equal(case.attend(dropout=0.2), attempts[0])
    assert not torch.equal(attempts[0], attempts[1])


def test_gradient_in_the_values_is_exact_under_dropout():
    # the output is linear in the values: the same mask in both passes, or this does not hold
    case = Case(34)
    torch.manual_seed(2)
    out = case.attend(dropout=0.4)
    *_, g_values = case.gradients(out)
    along = float((g_values * case.series[1]).detach().sum())
    assert along == pytest.approx(float((out * case.direction).detach().sum()), rel=1e-4)


@pytest.mark.parametrize("width", [16, 24])
def test_module_calls_the_kernel(width, without_kernels, monkeypatch):
    torch.manual_seed(0)
    attention = ContinuousAttention(width, 4, dropout=0.1)
    x, times = torch.randn(3, 40, width), torch.rand(3, 40).sort().values
    calls = []
    fused = fused_knots.fused_attention
    monkeypatch.setattr(fused_knots, "fused_attention", lambda *given: calls.append(1) or fused(*given))
    attention(x, times)
    attention(x, times, query_times=times + 0.01)
    attention(x, 3 * times)
    ContinuousAttention(width, 4, interpolation="cubic")(x, times, query_times=times + 0.01)
    assert calls == [1, 1, 1, 1]
    attention(x, times, query_times=times.clone().requires_grad_())
    attention.double()(x.double(), times)
    attention.float()(x, times, return_weights=True)
    ContinuousAttention(width, 4, causal=True)(x, times, query_times=times + 0.01)
    without_kernels()
    attention(x, times)
    assert calls == [1, 1, 1, 1]


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_too_many_queries_fall_back_to_separate_passes(interpolation, monkeypatch):
    torch.manual_seed(0)
    attention = ContinuousAttention(16, 4, interpolation=interpolation)
    x, times, queries = torch.randn(2, 9, 16), torch.rand(2, 9).sort().values, torch.rand(2, 40)
    expected = attention(x, times, queries)
    monkeypatch.setattr(fused_knots, "NUMBERS", 49 * 9 - 1)
    monkeypatch.setattr(fused_knots, "fused_attention", lambda *given: pytest.fail("too large for this"))
    torch.testing.assert_close(attention(x, times, queries), expected, atol=1e-5, rtol=1e-5)


def test_dropout_share_that_rounds_to_one_drops_all():
    torch.manual_seed(0)
    attention = ContinuousAttention(16, 2, dropout=1 - 1e-9).train()
    out = attention(torch.randn(3, 200, 16), torch.rand(3, 200, dtype=torch.float64).sort().values)
    assert torch.equal(out, attention.out_proj.bias.expand_as(out))

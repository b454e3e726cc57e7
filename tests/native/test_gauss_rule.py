"""Kernels of the Gauss-Legendre rules against PyTorch."""

import pytest
import torch

from contiformer.native import gauss_rule
from contiformer.native import library as native
from contiformer.nn import ContinuousAttention, spectral, value_means

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

ALL = ["between_scores", "between_values", "between_values_back", "between_scores_back"]


class Case:
    """Attention by a rule, of random observations, some of them missing and two at one time."""

    def __init__(self, *, queries=None, length=12, width=16, heads=2, span=1.7, rule="gauss", **options):
        torch.manual_seed(0)
        self.attention = ContinuousAttention(width, n_heads=heads, rule=rule, **options)
        self.times = span * torch.rand(3, length, dtype=torch.float64).sort(1).values
        if length > 5:
            self.times[:, 5] = self.times[:, 4]
        self.mask = torch.arange(length) < torch.tensor([[length], [1], [max(1, length - 2)]])
        self.x = torch.randn(3, length, width, requires_grad=True)
        # before, between and after the observations, in no order
        self.queries = None if queries is None else span * (1.4 * torch.rand(3, queries, dtype=torch.float64) - 0.2)
        self.direction = None

    def results(self):
        """What it says, and the gradients of input and parameters."""
        said = self.attention(self.x, self.times, self.queries, self.mask)
        self.direction = torch.randn_like(said) if self.direction is None else self.direction
        learned = [self.x, *self.attention.parameters()]
        return [said, *torch.autograd.grad(said, learned, self.direction, allow_unused=True)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [None, 7])
@pytest.mark.parametrize(
    "options",
    [
        {"points": 2},
        {"points": 3},
        {"points": 4, "piece_length": 0.4},
        {"points": 5, "piece_length": 0.3},
        {"interpolation": "hermite"},
        {"width": 20, "heads": 4, "piece_length": 0.5},
        {"width": 26, "heads": 2, "piece_length": 0.4},
        {"length": 1},
        {"length": 150},
        {"continuous_scores": False},
        {"continuous_values": False},
        {"normalize_scores": False, "normalize_values": False},
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_torch(causal, queries, options, calls, monkeypatch):
    case = Case(causal=causal, queries=queries, **options)
    found = case.results()
    wanted = [
        name for name in ALL if options.get("continuous_scores" if "scores" in name else "continuous_values", True)
    ]
    assert sorted(set(calls)) == sorted(wanted)
    monkeypatch.setattr(value_means, "usable", lambda *tensors: False)
    calls.clear()
    expected = case.results()
    assert calls == []
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a - b).abs().max() < 1e-5 * max(1.0, float(b.detach().abs().max()))


def test_threads_do_not_change_the_result(monkeypatch):
    """Not even where the heads of one sequence are shared out."""
    case = Case(length=60, causal=True)
    results = []
    for threads in (1, 6):
        monkeypatch.setattr(gauss_rule, "threads_for", lambda *work, threads=threads: threads)
        results.append(case.results())
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_backward_pass_stores_one_series_for_all_rows(calls):
    """Though the kernels read it with zeros behind its numbers, and rows come in chunks."""
    case = Case(length=300, width=10, heads=2)
    kept = {}

    def pack(x):
        if x.dim() == 6 and x.shape[-1] == 5:
            kept[x.data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        case.attention(case.x, case.times, None, case.mask)
    assert calls.count("between_scores") > 1
    # of the keys and of the values
    assert len(kept) == 2


def test_recomputed_weights_equal_the_stored_ones(monkeypatch):
    case = Case(queries=7, dropout=0.2)
    results = []
    for most in (2**25, 0):
        monkeypatch.setattr(spectral, "KEEP_WEIGHTS", most)
        torch.manual_seed(0)
        results.append(case.results())
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("rule", ["exact", "gauss"])
@pytest.mark.parametrize("queries", [None, 7])
def test_saved_tensor_hooks_may_change_the_layout(rule, queries):
    case = Case(queries=queries, rule=rule)
    expected = case.results()

    def turned(x):
        return x.mT.contiguous().mT if x.dim() > 1 else x

    with torch.autograd.graph.saved_tensors_hooks(turned, lambda x: x):
        found = case.results()
    for a, b in zip(found, expected, strict=True):
        assert a is b is None or (a - b).abs().max() < 1e-6 * max(1.0, float(b.detach().abs().max()))


def test_unsorted_queries_find_their_cells():
    """Among many more knots than the steps after which a cell is searched for."""
    case = Case(length=300, queries=20, interpolation="hermite")
    found = case.results()[0]
    order = torch.randperm(20)
    case.queries = case.queries[:, order]
    assert (case.results()[0] - found[:, order]).abs().max() < 1e-6


@pytest.mark.parametrize("why", ["double", "times of queries are learned", "many terms"])
def test_unsupported_input_falls_back_to_torch(why, calls):
    case = Case(queries=5, degree=gauss_rule.MOST_TERMS + 2 if why == "many terms" else 7)
    if why == "double":
        case.attention.double()
        case.x = case.x.detach().double().requires_grad_()
    elif why == "times of queries are learned":
        case.queries.requires_grad_()
    assert case.results()[0].isfinite().all()
    assert calls == []


def test_second_derivatives_are_refused():
    case = Case()
    said = case.attention(case.x, case.times, None, case.mask)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(said.sum(), case.x, create_graph=True)

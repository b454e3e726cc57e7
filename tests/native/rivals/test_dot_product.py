"""The dot-product attention kernel with dropout against products, softmax and dropout."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from contiformer.native import library as native
from contiformer.native.rivals.dot_product import _WithDropout
from contiformer.nn.dot_product import dot_product_attention
from tests.native.gradients import with_gradients

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

BOTH = ["dot_product_forward", "dot_product_backward"]
SEED = 2**61 + 12345


class Case:
    """Random queries, keys and values."""

    def __init__(self, rows, others, part, *, batch=2, heads=3, causal=False, dropout=0.3, size=1.0):
        torch.manual_seed(0)
        self.causal, self.dropout = causal, dropout
        self.parts = {
            name: (size * torch.randn(batch, count, heads, part)).transpose(1, 2).requires_grad_()
            for name, count in (("queries", rows), ("keys", others), ("values", others))
        }
        self.direction = torch.randn(batch, heads, rows, part)

    def said(self, seed=SEED, **parts):
        """By the kernel."""
        parts = self.parts | parts
        return _WithDropout.apply(parts["queries"], parts["keys"], parts["values"], self.dropout, self.causal, seed)

    def kept(self, seed=SEED):
        """[batch, heads, rows, others]: 1 where a weight stays. Asked for with values that are 1 for one key each."""
        queries, keys, values = (part.detach() for part in self.parts.values())
        part, others = keys.shape[2:][::-1]
        columns = []
        for first in range(0, others, part):
            one = torch.eye(others)[:, first : first + part]
            one = torch.nn.functional.pad(one, (0, part - one.shape[1])).expand_as(values)
            columns.append(self.said(seed, queries=0 * queries, keys=0 * keys, values=one))
        weights = torch.cat(columns, dim=-1)[..., :others]
        return (weights > 0).double()

    def expected(self):
        """By the formula, in double precision, with the same weights dropped."""
        queries, keys, values = (part.double() for part in self.parts.values())
        scores = queries @ keys.mT / keys.shape[-1] ** 0.5
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return (scores.softmax(-1) * self.kept() / (1 - self.dropout)) @ values

    def results(self, said):
        return with_gradients("said", said, self.parts, self.direction.to(said.dtype))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.05, 0.6])
@pytest.mark.parametrize(
    ("rows", "others", "part"),
    [(1, 1, 1), (5, 7, 3), (8, 24, 8), (9, 25, 16), (30, 61, 12), (61, 30, 40), (17, 48, 24)],
)
def test_values_and_gradients_are_those_of_the_formula(causal, dropout, rows, others, part):
    case = Case(rows, others, part, causal=causal, dropout=dropout)
    found, expected = case.results(case.said()), case.results(case.expected())
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max() < 1e-5 * max(1.0, float(tensor.abs().max())), name


@pytest.mark.parametrize("size", [10.0, 100.0])
def test_large_scores_do_not_overflow(size):
    case = Case(20, 30, 8, size=size)
    found, expected = case.results(case.said()), case.results(case.expected())
    for name, tensor in expected.items():
        # scores are of the size's square, and have as much more error in single precision
        assert (found[name] - tensor).abs().max() < 1e-6 * size**2 * tensor.abs().max(), name


@pytest.mark.parametrize("score", [1e2, 1e4, 1e6, 1e8])
def test_equal_keys_have_equal_weights(score):
    """Whatever the score is: the logarithm of a sum would lose the sum in it."""
    case = Case(4, 50, 1, dropout=0.0)
    with torch.no_grad():
        case.parts["queries"].fill_(1.0)
        case.parts["keys"].fill_(score)
    found, expected = case.results(case.said()), case.results(case.expected())
    for name in ("said", "values"):
        assert (found[name] - expected[name]).abs().max() < 1e-6 * expected[name].abs().max(), name


def test_scores_of_one_key_have_no_gradient():
    """Not even a small one, which an optimiser would make steps of."""
    found = Case(5, 1, 8, dropout=0.0)
    found = found.results(found.said())
    assert found["queries"].abs().max() == found["keys"].abs().max() == 0


def test_nan_stays_in_its_sequence_and_head():
    case = Case(3, 5, 4)
    with torch.no_grad():
        case.parts["keys"][0, 0, 2, 1] = torch.nan
    said = case.said()
    assert said[0, 0].isnan().all()
    assert said[0, 1:].isfinite().all()
    assert said[1].isfinite().all()


def test_dropped_share_and_independence():
    case = Case(200, 150, 8, batch=4, heads=4, dropout=0.25)
    kept = case.kept()
    five = 5 * (0.25 * 0.75) ** 0.5
    assert abs(kept.mean() - 0.75) < five / kept.numel() ** 0.5
    # of each row and of each key, among which seven standard deviations do not happen
    for axes in ((3,), (0, 1, 2)):
        means = kept.mean(axes)
        assert (means - 0.75).abs().max() < 1.4 * five / (kept.numel() / means.numel()) ** 0.5
    centred = (kept - 0.75) / (0.25 * 0.75) ** 0.5
    for axis in range(4):
        for lag in (1, 2, 3):
            together = (centred * centred.roll(lag, axis)).mean()
            assert together.abs() < 5 / kept.numel() ** 0.5, (axis, lag)
    together = (centred * ((case.kept(SEED + 1) - 0.75) / (0.25 * 0.75) ** 0.5)).mean()
    assert together.abs() < 5 / kept.numel() ** 0.5


def test_no_two_rows_drop_the_same():
    kept = Case(200, 120, 8, batch=8, heads=4, dropout=0.5).kept().flatten(0, 2)
    assert len(kept.unique(dim=0)) == len(kept)


@pytest.mark.parametrize("layout", ["heads apart", "parts apart", "one for all"])
@pytest.mark.parametrize("name", ["queries", "keys", "values"])
def test_memory_layout_does_not_matter(name, layout):
    case = Case(9, 26, 16)
    part = case.parts[name].detach()
    moved = {
        "heads apart": part.contiguous(),
        "parts apart": part.mT.contiguous().mT,
        "one for all": part[:1, :1].expand_as(part),
    }[layout]
    results = []
    for here in (moved, moved.transpose(1, 2).contiguous().transpose(1, 2)):
        case.parts[name] = here.requires_grad_()
        results.append(case.results(case.said()))
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


def test_saved_tensor_hooks_may_change_the_layout():
    case = Case(9, 26, 16)
    expected = case.results(case.said())
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.contiguous(), lambda x: x):
        said = case.said()
    found = case.results(said)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("keep", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(keep):
    case = Case(9, 26, 16)
    parts = list(case.parts.values())

    def said():
        return dot_product_attention(*parts, dropout=0.3)

    results = []
    for attend in (said, lambda: checkpoint(said, use_reentrant=False, preserve_rng_state=keep)):
        torch.manual_seed(0)
        results.append(case.results(attend()))
    # without its random numbers kept, the second run has another seed, but the backward pass that of the first
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_output_may_be_changed_in_place():
    case = Case(9, 26, 16)
    expected = case.results(case.said() + 1)
    changed = case.said()
    changed += 1
    found = case.results(changed)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_expanded_gradients_are_accepted():
    case = Case(9, 26, 16)
    parts = list(case.parts.values())
    for a, b in zip(
        torch.autograd.grad(case.said().sum(), parts),
        torch.autograd.grad(case.said(), parts, torch.ones_like(case.direction)),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_threads_do_not_change_the_result():
    case = Case(70, 90, 16, batch=5)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(case.results(case.said()))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(other[name], found[0][name]) for name in other)


def test_later_rows_do_not_change_causal_outputs():
    case = Case(30, 30, 8, causal=True)
    moved = {name: part.detach().clone() for name, part in case.parts.items()}
    for part in moved.values():
        part[:, :, 17:] = 1e6
    assert torch.equal(case.said(**moved)[:, :, :17], case.said()[:, :, :17])


def test_module_calls_the_kernel(calls):
    case = Case(9, 26, 16)
    said = dot_product_attention(*case.parts.values(), dropout=0.3)
    torch.autograd.grad(said.sum(), list(case.parts.values()))
    assert calls == BOTH


@pytest.mark.parametrize("why", ["double", "mask", "other widths", "no batch", "nothing", "all dropped", "func"])
def test_unsupported_input_falls_back_to_torch(why, calls):
    queries, keys, values = (part.detach() for part in Case(9, 26, 16).parts.values())
    dropout, mask = 0.3, None
    if why == "double":
        queries, keys, values = queries.double(), keys.double(), values.double()
    elif why == "mask":
        mask = torch.ones(9, 26, dtype=torch.bool)
    elif why == "other widths":
        values = torch.cat([values, values], dim=-1)
    elif why == "no batch":
        queries, keys, values = queries[0], keys[0], values[0]
    elif why == "nothing":
        queries = queries[:, :, :0]
    elif why == "all dropped":
        dropout = 1.0
    if why == "func":
        mapped = torch.func.vmap(lambda q: dot_product_attention(q, keys, values, None, dropout), randomness="same")
        said = mapped(queries.unsqueeze(0))[0]
    else:
        said = dot_product_attention(queries, keys, values, mask, dropout)
    assert said.shape == (*queries.shape[:-1], values.shape[-1])
    assert said.isfinite().all()
    assert calls == []


def test_randomness_follows_the_torch_seed(calls):
    parts = list(Case(9, 26, 16).parts.values())
    said = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        said.append(dot_product_attention(*parts, dropout=0.3))
    said.append(dot_product_attention(*parts, dropout=0.3))
    assert calls == BOTH[:1] * 4
    assert torch.equal(said[0], said[1])
    assert not torch.equal(said[0], said[2])
    assert not torch.equal(said[2], said[3])


def test_random_numbers_ignore_the_default_device():
    parts = list(Case(9, 26, 16).parts.values())
    with torch.device("meta"):
        assert dot_product_attention(*parts, dropout=0.3).isfinite().all()


def test_second_derivatives_are_refused():
    case = Case(3, 4, 5)
    parts = list(case.parts.values())
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(case.said().sum(), parts, create_graph=True)


def test_gradients_in_several_directions_at_once_are_refused():
    case = Case(3, 4, 5)
    directions = torch.randn(2, *case.direction.shape)
    with pytest.raises(RuntimeError, match="several directions at once"):
        torch.autograd.grad(case.said(), list(case.parts.values()), directions, is_grads_batched=True)

"""Conformance suite of all backbones. A new one is tested as soon as it is in ``BACKBONES``."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from contiformer.backbones import BACKBONES, Backbone, make_backbone
from contiformer.data.batch import Batch
from tests.problems import largest, sorted_times

CHANNELS, WIDTH = 2, 8
LENGTHS = (7, 4, 1)
STEP = 0.125

#: Sizes that make any model small; each backbone gets those that it knows.
TINY = {
    "n_heads": 2, "d_ff": 16, "time_features": 16, "references": 8, "mixtures": 2, "max_length": 32,
    "units": 8, "step": 0.5, "latents": 4, "encoder_size": 8, "state_size": 8, "blocks": 2, "basis": 3,
    "history": 8, "horizon": 16, "kernel": 3, "kernels": (3, 5), "n_kernels": 2,
}  # fmt: skip
#: Backbones that solve a differential equation, of which gradients are compared with finite differences.
EQUATIONS = (
    "contiformer", "neural_ode", "latent_ode", "latent_ode_rnn", "ode_rnn", "neural_cde", "cadn", "cru", "s5",
)  # fmt: skip
#: Backbones that choose places by comparing numbers, so that a small difference may become a large one.
CHOOSING = ("autoformer", "informer", "reformer", "timesnet")
#: In float64: ContiFormer's window of time depends on what is asked, and its resolution is finite. States without a
#: norm at the end are larger.
TOLERANCE = {"contiformer": 1e-5, "contiformer-norm-encoding_scale": 2e-5}
#: Parameters that can change no state, as "backbone.parameter", and why; for example a key's bias under softmax.
WITHOUT_EFFECT: dict[str, str] = {}


def option_names(kind: type[Backbone]) -> set[str]:
    """The keywords of the constructor, those that it hands on among them."""
    names = set(inspect.signature(kind).parameters)
    for hint in get_type_hints(kind.__init__).values():
        names |= set(get_type_hints(get_args(hint)[0])) if get_origin(hint) is Unpack else set()
    return names


@dataclass(frozen=True)
class Case:
    """A backbone with options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *self.options])

    def make(self, seed: int = 0, **options: Any) -> Backbone:
        torch.manual_seed(seed)
        known = option_names(BACKBONES[self.name])
        tiny = {name: size for name, size in TINY.items() if name in known}
        return make_backbone(
            self.name, CHANNELS, **{"d_model": WIDTH, "dropout": 0.0, **tiny, **self.options, **options}
        )

    def double(self, seed: int = 0, **options: Any) -> Backbone:
        return self.make(seed, **options).double().eval()

    @property
    def tolerance(self) -> float:
        return TOLERANCE.get(str(self), TOLERANCE.get(self.name, 1e-10))


CASES = [
    *(Case(name) for name in BACKBONES),
    *(Case(name, {"causal": True}) for name in BACKBONES if BACKBONES[name].causal_option),
    *(Case(name, dict(options)) for name, kind in BACKBONES.items() for options in kind.defaults.values()),
]
CAN = {str(case): case.make().capabilities for case in CASES}
every_backbone = pytest.mark.parametrize("case", CASES, ids=str)
every_irregular = pytest.mark.parametrize("case", [c for c in CASES if CAN[str(c)].irregular], ids=str)
every_causal = pytest.mark.parametrize("case", [c for c in CASES if CAN[str(c)].causal], ids=str)
every_missing = pytest.mark.parametrize("case", [c for c in CASES if CAN[str(c)].missing], ids=str)


def batch_of(times: Tensor, values: Tensor, observed: Tensor, lengths: tuple[int, ...]) -> Batch:
    """Padding as the data layer makes it: the last time again, zeros, nothing observed."""
    times, observed, count = times.clone(), observed.clone(), torch.tensor(lengths)
    for row, length in enumerate(lengths):
        times[row, length:] = times[row, length - 1] if length else 0.0
        observed[row, length:] = False
    return Batch(times, torch.where(observed, values, 0.0), observed, count)


def draw_batch(case: Case, lengths: tuple[int, ...] = LENGTHS, dtype: torch.dtype = torch.float64) -> Batch:
    """Series that the backbone can take, with channels missing at random if it can do that; always the same ones."""
    torch.manual_seed(3)
    size, points = len(lengths), max(lengths)
    can = CAN[str(case)]
    times = sorted_times(size, points) if can.irregular else STEP * torch.arange(points).double().expand(size, -1)
    values = torch.randn(size, points, CHANNELS, dtype=dtype)
    observed = torch.ones(size, points, CHANNELS, dtype=torch.bool)
    if can.missing:
        observed = torch.rand(size, points, CHANNELS) < 0.7
        observed[0, 0] = torch.tensor([True, False])
        observed[..., 0] |= ~observed.any(-1)
    return batch_of(times, values, observed, lengths)


def draw_queries(case: Case, batch: Batch, count: int = 5) -> Tensor:
    """Before, between and after the observations in no order, or where the grid goes on."""
    if CAN[str(case)].irregular:
        return 1.6 * torch.rand(len(batch), count, dtype=torch.float64) - 0.3
    last = batch.times[:, -1:] if batch.times.shape[1] else torch.zeros(len(batch), 1, dtype=torch.float64)
    return last + STEP * (1 + torch.randperm(count))


def rows_of(batch: Batch, row: int, length: int) -> Batch:
    """One series without its padding."""
    one = batch[row : row + 1]
    return Batch(one.times[:, :length], one.values[:, :length], one.observed[:, :length], one.lengths)


@every_backbone
def test_capabilities_are_known_without_the_model(case):
    kind = BACKBONES[case.name]
    assert kind.capabilities_for(**case.options) == CAN[str(case)]
    assert kind.capabilities == CAN[case.name]
    if "causal" in inspect.signature(kind).parameters:
        assert kind.causal_option
    if not kind.causal_option:
        with pytest.raises(ValueError, match="does not fit"):
            make_backbone(case.name, CHANNELS, causal=True)


@every_backbone
def test_defaults_of_tasks_are_options(case):
    kind = BACKBONES[case.name]
    assert set(kind.defaults) <= {"classification", "regression", "interpolation", "forecasting", "events"}
    for options in kind.defaults.values():
        assert case.make(**options).d_model == WIDTH


@every_backbone
@pytest.mark.parametrize("n_layers", [1, 2])
def test_states_at_the_times_and_at_any_queries(case, n_layers):
    model = case.make(n_layers=n_layers).eval()
    batch = draw_batch(case, dtype=torch.float32)
    states = model(batch)
    assert states.shape == (3, 7, WIDTH)
    queries = draw_queries(case, batch)
    asked = model(batch, queries)
    assert asked.shape == (3, 5, WIDTH)
    assert states.dtype == asked.dtype == torch.float32
    assert states.isfinite().all()
    assert asked.isfinite().all()
    assert model(batch, queries[:, :0]).shape == (3, 0, WIDTH)


@every_backbone
def test_states_depend_on_the_observations(case):
    model = case.double()
    batch = draw_batch(case)
    # not by a shift: a model may leave out the level of a series, and then all of a series of one row
    other = replace(batch, values=torch.where(batch.observed, batch.values + torch.randn_like(batch.values), 0.0))
    last = batch.times[:, -1:] + STEP
    for queries in (None, last):
        moved = model(other, queries) - model(batch, queries)
        assert all(largest(moved[row, :1]) > 1e-6 for row in range(2))


@every_backbone
def test_gradients_reach_every_parameter_and_value(case):
    model = case.double()
    batch = draw_batch(case)
    batch.values.requires_grad_()
    # where states at the times and answers to queries have parameters of their own, each is used once
    states = torch.cat([model(batch), model(batch, draw_queries(case, batch, count=16))], dim=1)
    (states * torch.randn_like(states)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert f"{case.name}.{name}" in WITHOUT_EFFECT or parameter.grad.abs().max() > 0, name
    assert batch.values.grad is not None
    assert batch.values.grad.isfinite().all()
    assert batch.values.grad[batch.observed].abs().max() > 0


@every_backbone
def test_training_with_dropout_and_an_empty_series_gives_finite_gradients(case):
    model = case.make(n_layers=2, dropout=0.3).train()
    batch = draw_batch(case, (6, 0, 1), torch.float32)
    states = torch.cat([model(batch), model(batch, draw_queries(case, batch))], dim=1)
    assert states.isfinite().all()
    (states * torch.randn_like(states)).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@every_backbone
@pytest.mark.parametrize("asked", [False, True], ids=["times", "queries"])
def test_mixed_precision_is_near_full_precision(case, asked):
    """As the trainer has it on graphics cards."""
    model, batch = case.make().eval(), draw_batch(case, dtype=torch.float32)
    query = draw_queries(case, batch) if asked else None
    exact = model(batch, query)
    with torch.autocast("cpu", torch.bfloat16):
        states = model(batch, query)
    assert states.isfinite().all()
    if case.name not in CHOOSING:
        assert largest(states.float() - exact) <= 0.1 * largest(exact) + 0.02
    states.float().square().sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


@every_backbone
@pytest.mark.parametrize("asked", [False, True], ids=["times", "queries"])
def test_padding_and_batch_mates_do_not_matter(case, asked):
    model = case.double(n_layers=2)
    batch = draw_batch(case)
    queries = draw_queries(case, batch) if asked else None
    together = model(batch, queries)
    for row, length in enumerate(LENGTHS):
        at = None if queries is None else queries[row : row + 1]
        alone = model(rows_of(batch, row, length), at)[0]
        assert largest(together[row, : len(alone)] - alone) < 1e-10


@every_backbone
def test_padding_and_batch_mates_do_not_matter_in_float32(case):
    model = case.make(n_layers=2).eval()
    batch = draw_batch(case, dtype=torch.float32)
    row, length = 1, LENGTHS[1]
    alone = model(rows_of(batch, row, length))[0]
    assert largest(model(batch)[row, :length] - alone) < 2e-6


@every_irregular
def test_rows_of_padding_in_the_middle_do_not_matter(case):
    model = case.double(n_layers=2)
    batch = draw_batch(case, (4, 4))
    kept = torch.tensor([1, 2, 4, 6])
    times = torch.tensor([-7.0, 0, 0, 99.0, 0, -7.0, 0], dtype=torch.float64).repeat(2, 1)
    values, observed = torch.zeros(2, 7, CHANNELS, dtype=torch.float64), torch.zeros(2, 7, CHANNELS, dtype=torch.bool)
    times[:, kept], values[:, kept], observed[:, kept] = batch.times, batch.values, batch.observed
    spread = Batch(times, values, observed, torch.tensor([7, 7]))
    assert largest(model(spread)[:, kept] - model(batch)) < 1e-10
    assert model(spread).isfinite().all()
    queries = draw_queries(case, batch)
    assert largest(model(spread, queries) - model(batch, queries)) < 1e-10


@every_missing
def test_value_that_was_not_observed_does_not_matter(case):
    model = case.double(n_layers=2)
    batch = draw_batch(case)
    other = replace(batch, values=torch.where(batch.observed, batch.values, 123.0))
    real = batch.observed.any(-1)
    assert largest((model(batch) - model(other))[real]) < case.tolerance
    queries = draw_queries(case, batch)
    assert largest(model(batch, queries) - model(other, queries)) < case.tolerance


@every_missing
def test_channel_that_is_never_observed_is_legal_and_the_others_count(case):
    model = case.double()
    batch = draw_batch(case)
    observed = batch.observed.clone()
    observed[..., 0], observed[..., 1] = False, observed.any(-1)
    batch = replace(batch, observed=observed, values=torch.where(observed, 1.5, 0.0).double())
    states = model(batch)
    assert states.isfinite().all()
    assert largest(model(replace(batch, values=-batch.values)) - states) > 1e-6


@every_backbone
def test_queries_do_not_see_each_other(case):
    model = case.double(n_layers=2)
    batch = draw_batch(case)
    queries = draw_queries(case, batch)
    states = model(batch, queries)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert largest(model(batch, queries[:, order]) - states[:, order]) < case.tolerance
    assert largest(model(batch, queries[:, 1:2]) - states[:, 1:2]) < case.tolerance
    twice = torch.cat([queries, queries[:, :2]], dim=1)
    assert largest(model(batch, twice) - torch.cat([states, states[:, :2]], dim=1)) < case.tolerance


@every_causal
def test_causal_states_do_not_see_the_future(case):
    model = case.double(n_layers=2)
    batch = draw_batch(case, (9, 6))
    since = 4
    values, observed, times = batch.values.clone(), batch.observed.clone(), batch.times.clone()
    values[:, since:] = 5 * torch.randn_like(values[:, since:])
    if CAN[str(case)].missing:
        # one row is gone, and another has other channels
        observed[:, since] = False
        observed[:, since + 1] = observed[:, since + 1].flip(-1)
    if CAN[str(case)].irregular:
        times[:, since + 1 :] += 0.2
    other = Batch(times, torch.where(observed, values, 0.0), observed, batch.lengths)
    before, after = model(batch), model(other)
    assert largest(before[:, :since] - after[:, :since]) < case.tolerance
    assert largest(before[:, since + 1] - after[:, since + 1]) > 1e-6
    if CAN[str(case)].irregular:
        early = torch.rand(2, 8, dtype=torch.float64) * batch.times[:, since : since + 1] - 1e-6
        early[:, :1] = batch.times[:, :1] - 0.1
        assert largest(model(batch, early) - model(other, early)) < case.tolerance


@every_causal
def test_causal_states_with_ties_go_by_the_order_of_rows(case):
    if not CAN[str(case)].irregular:
        pytest.skip("a regular grid has no ties")
    model = case.double(n_layers=2)
    batch = draw_batch(case, (6, 6))
    times = batch.times.clone()
    times[:, 3] = times[:, 4] = times[:, 2]
    batch = replace(batch, times=times)
    values = batch.values.clone()
    values[:, 3] += batch.observed[:, 3]
    other = replace(batch, values=values)
    before, after = model(batch), model(other)
    assert largest(before[:, :3] - after[:, :3]) < case.tolerance
    assert largest(before[:, 3] - after[:, 3]) > 1e-6
    now = times[:, 2:3]
    assert largest(model(batch, now) - model(other, now)) > 1e-6
    assert largest(model(batch, now - 1e-9) - model(other, now - 1e-9)) < case.tolerance


@pytest.mark.parametrize("apart", [1e-15, 1e-13, 1e-11])
@every_causal
def test_causal_states_with_near_ties_do_not_see_later_rows(case, apart):
    if not CAN[str(case)].irregular:
        pytest.skip("a regular grid has no ties")
    model = case.double(n_layers=2)
    batch = draw_batch(case, (6, 6))
    times = batch.times.clone()
    times[:, 3], times[:, 4] = times[:, 2] + apart, times[:, 2] + 2 * apart
    batch = replace(batch, times=times)
    for row in (3, 4):
        values = batch.values.clone()
        values[:, row] += batch.observed[:, row]
        other = replace(batch, values=values)
        assert largest(model(batch)[:, :row] - model(other)[:, :row]) < case.tolerance


@every_causal
def test_causal_query_sees_the_observation_at_its_own_time(case):
    if not CAN[str(case)].irregular:
        pytest.skip("queries are in the future there")
    model = case.double()
    batch = draw_batch(case, (5, 5))
    values = batch.values.clone()
    values[:, 2] += batch.observed[:, 2]
    now = batch.times[:, 2:3]
    moved = model(replace(batch, values=values), now) - model(batch, now)
    assert all(largest(one) > 1e-6 for one in moved)


@every_backbone
def test_saved_and_loaded_it_says_the_same(case):
    model, other = case.make(seed=0).eval(), case.make(seed=1).eval()
    batch = draw_batch(case, dtype=torch.float32)
    queries = draw_queries(case, batch)
    assert not torch.equal(model(batch, queries), other(batch, queries))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(batch), other(batch))
    assert torch.equal(model(batch, queries), other(batch, queries))


@every_backbone
def test_attention_weights_are_shares_of_the_points(case):
    batch = draw_batch(case, dtype=torch.float32)
    queries = draw_queries(case, batch)
    model = case.make().eval()
    weights = model.attention_weights(batch, queries)
    if weights is None:
        return
    assert weights.shape[0::2] == (3, 5)
    assert weights.shape[3] == 7
    if not CAN[str(case)].causal:
        assert largest(weights.sum(-1) - 1) < 1e-5
    assert not any(module._forward_pre_hooks for module in model.modules())


@every_causal
def test_stream_is_equal_to_a_pass_over_the_whole_series(case):
    model = case.double()
    stream = model.stream()
    if stream is None:
        return
    batch = draw_batch(case, (6,))
    batch = replace(batch, observed=torch.ones_like(batch.observed))
    later = batch.times[:, -1:] + 0.3
    states = torch.stack([stream.append(*row) for row in zip(batch.values[0], batch.times[0].tolist(), strict=True)])
    assert largest(states - model(batch)[0]) < 1e-5
    assert largest(stream.at(float(later)) - model(batch, later)[0, 0]) < 1e-5


@every_backbone
def test_same_answers_every_time(case):
    model = case.make(dropout=0.5).eval()
    batch = draw_batch(case, dtype=torch.float32)
    queries = draw_queries(case, batch)
    torch.manual_seed(1)
    first = model(batch), model(batch, queries)
    torch.manual_seed(2)
    assert torch.equal(first[0], model(batch))
    assert torch.equal(first[1], model(batch, queries))


@every_backbone
def test_empty_and_one_row_series_are_defined(case):
    model = case.double(n_layers=2)
    padded = draw_batch(case, (3, 1, 0))
    queries = draw_queries(case, padded)
    states = model(padded, queries)
    assert states.isfinite().all()
    assert model(padded).isfinite().all()
    no_rows = rows_of(padded, 2, 0)
    assert model(no_rows).shape == (1, 0, WIDTH)
    assert largest(model(no_rows, queries[2:]) - states[2:]) < case.tolerance


@pytest.mark.parametrize("name", BACKBONES)
def test_eight_series_can_be_learned_by_heart(name):
    case = Case(name)
    batch = draw_batch(case, (5,) * 8, torch.float32)
    queries = None if CAN[name].irregular else draw_queries(case, batch, count=3)
    wanted = torch.tensor([1.0, -1.0]).repeat(4)
    model = case.make(d_model=16).train()
    head = torch.nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    first = None
    for _ in range(300):
        loss = (head(model(batch, queries).mean(1)).squeeze(-1) - wanted).square().mean()
        first = loss.item() if first is None else first
        if loss.item() < first / 10:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pytest.fail(f"the loss fell from {first:.3f} to {loss.item():.3f} only")


@pytest.mark.parametrize("name", [name for name in EQUATIONS if name in BACKBONES])
def test_gradients_are_those_of_finite_differences(name):
    case = Case(name)
    model = case.double(d_model=4)
    batch = draw_batch(case, (2,))
    queries = draw_queries(case, batch, count=1)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    direction = {name: torch.randn_like(weight) for name, weight in weights.items()}

    def states(values: Tensor, step: Tensor) -> Tensor:
        given = replace(batch, values=torch.where(batch.observed, values, 0.0))
        moved = {name: weight + step * direction[name] for name, weight in weights.items()}
        return torch.func.functional_call(model, moved, (given, queries))

    inputs = batch.values.clone().requires_grad_(), torch.zeros((), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(states, inputs, atol=1e-6, rtol=1e-4, check_undefined_grad=False)

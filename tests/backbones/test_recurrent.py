"""GRU-Δt, GRU-D and ODE-RNN against their formulas, one series and one row at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from contiformer.backbones.flow import Flow
from contiformer.backbones.gru_d import GRUD, time_missed
from contiformer.backbones.gru_dt import GRUDt
from contiformer.backbones.ode_rnn import ODERNN
from contiformer.backbones.recurrence import Rows, state_after
from contiformer.data import Series, collate
from contiformer.data.batch import Batch
from contiformer.nn.local_features import time_since_observed
from tests.backbones.batches import CHANNELS, draw, jumbled_queries, one_series
from tests.problems import largest, normal

WIDTH = 8
MODELS = [GRUDt, GRUD, ODERNN]


def make(model, seed=0, **options):
    torch.manual_seed(seed)
    return model(CHANNELS, WIDTH, **options).double().eval()


# ---- rows


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(0, 99))
def test_rows_are_those_with_an_observation_in_their_order(marks, seed):
    torch.manual_seed(seed)
    observed = torch.tensor(marks).unsqueeze(-1)
    times = torch.randint(0, 4, observed.shape[:2]).double().sort(1).values
    given_times = times.masked_fill(~observed.squeeze(-1), torch.nan)
    values = normal(*observed.shape).masked_fill(~observed, torch.nan)
    query = torch.tensor([[1.0, -1.0, 9.0, 2.5]], dtype=torch.float64).expand(len(marks), -1)
    rows = Rows.of(Batch(given_times, values, observed, torch.full((len(marks),), 5)), torch.float64)
    passed, elapsed = rows.until(query)
    assert all(x.isfinite().all() for x in (rows.times, rows.values, rows.gaps))
    for b, mark in enumerate(marks):
        real = [i for i in range(5) if mark[i]]
        assert rows.present[b].tolist() == [True] * len(real) + [False] * (5 - len(real))
        assert rows.times[b, : len(real)].tolist() == times[b, real].tolist()
        assert rows.values[b, : len(real)].tolist() == values[b, real].tolist()
        assert rows.passed[b].tolist() == [sum(mark[: i + 1]) for i in range(5)]
        for q, (count, since) in enumerate(zip(passed[b].tolist(), elapsed[b].tolist(), strict=True)):
            seen = [float(times[b, i]) for i in real if times[b, i] <= query[b, q]]
            assert count == len(seen)
            assert since == (float(query[b, q]) - seen[-1] if seen else 0.0)


def test_state_after_no_row_is_zero():
    states = normal(2, 3, 4)
    picked = state_after(states, torch.tensor([[0, 1], [3, 0]]))
    assert torch.equal(
        picked,
        torch.stack(
            [torch.stack([torch.zeros(4), states[0, 0]]), torch.stack([states[1, 2], torch.zeros(4)])]
        ).double(),
    )


# ---- GRU-Δt


@pytest.mark.parametrize("n_layers", [1, 2])
def test_gru_dt_is_the_gru_of_torch_on_values_marks_and_gaps(n_layers):
    model, batch = make(GRUDt, n_layers=n_layers, gap_unit=0.05), draw()
    states = model(batch)
    for row in range(3):
        times, values, marks = one_series(batch, row)
        gaps = torch.log1p(times.diff(prepend=times[:1]) / 0.05).unsqueeze(-1)
        expected, _ = model.gru(torch.cat([values, marks, gaps], dim=-1).unsqueeze(0))
        assert largest(states[row, batch.observed[row].any(-1)] - expected[0]) < 1e-12


def test_gru_dt_equals_a_walk_of_a_cell_and_drifts_in_proportion_to_the_time_since():
    model, batch = make(GRUDt), draw(batch=1)
    model.drift.data = normal(WIDTH)
    cell = nn.GRUCell(2 * CHANNELS + 1, WIDTH).double()
    cell.load_state_dict({name.removesuffix("_l0"): w for name, w in model.gru.state_dict().items()})
    times, values, marks = one_series(batch, 0)
    h, last = torch.zeros(WIDTH, dtype=torch.float64), times[0]
    query = (times[2] + times[3]) / 2
    for t, x, m in zip(times[:3], values[:3], marks[:3], strict=True):
        h, last = cell(torch.cat([x, m, torch.log1p((t - last) / 0.01).reshape(1)]), h), t
    expected = h * (1 + (query - times[2]) * model.drift)
    assert largest(model(batch, query.reshape(1, 1))[0, 0] - expected) < 1e-12


def test_gru_dt_without_drift_holds_its_state():
    model, batch = make(GRUDt, drift=False), draw()
    middle = (batch.times[:, 3:4] + batch.times[:, 4:5]) / 2
    assert torch.equal(model(batch, middle)[:, 0], model(batch)[:, 3])


# ---- GRU-D


def test_gru_d_knows_how_long_each_channel_was_missed_as_in_figure_2_of_its_paper():
    nan = float("nan")
    series = Series.of(
        [0, 0.1, 0.6, 1.6, 2.2, 2.5, 3.1],
        [[47, nan], [49, 15], [nan, 14], [40, nan], [nan, nan], [43, nan], [55, 15]],
    )
    batch = collate([series])
    # the figure counts the row in which nothing is observed; here it is padding, and what comes after does not change
    rows = Rows.of(batch, torch.float64)
    missed = time_missed(rows, time_since_observed(rows.times, rows.observed))[0, :6]
    expected = torch.tensor([[0, 0.1, 0.5, 1.5, 0.9, 0.6], [0, 0.1, 0.5, 1.0, 1.9, 2.5]], dtype=torch.float64)
    assert largest(missed.T - expected) < 1e-12


def test_gru_d_decays_an_input_to_its_mean_by_hand():
    """Observed 2 at time 0, missed at 0.5: with rate 3 and bias -0.5 it counts as 2 exp(-1)."""
    model = GRUD(2, 4).double()
    model.input_rate.data = torch.tensor([3.0, 1.0], dtype=torch.float64)
    model.input_bias.data = torch.tensor([-0.5, -9.0], dtype=torch.float64)
    batch = collate([Series.of([0, 0.5], [[2.0, 5.0], [float("nan"), 7.0]])])
    rows = Rows.of(batch, torch.float64)
    imputed = model.impute(rows, time_missed(rows, time_since_observed(rows.times, rows.observed)))
    expected = torch.tensor([[2.0, 5.0], [0.7357588823428847, 7.0]], dtype=torch.float64)
    assert largest(imputed[0] - expected) < 1e-12


def test_gru_d_decays_its_state_by_hand():
    """Rates 1 and 2 of two channels missed for 0.25 and 0.75, bias 0.25: exp(-(0.25 + 1.5 + 0.25)) = exp(-2)."""
    layer = make(GRUD).layers[0]
    layer.rate.weight.data = torch.tensor([[1.0, 2.0, 0.0], [-1.0, -2.0, 0.0]], dtype=torch.float64)
    layer.rate.bias.data = torch.tensor([0.25, 0.25], dtype=torch.float64)
    decay = layer.decay(torch.tensor([0.25, 0.75, 5.0], dtype=torch.float64))
    assert largest(decay - torch.tensor([0.1353352832366127, 1.0], dtype=torch.float64)) < 1e-12


def gru_d_reference(model, times, values, marks, query):
    """The equations of the paper for one series and a query after some of its rows."""
    layer = model.layers[0]
    w, b = layer.update.from_input.weight.chunk(3), layer.update.from_input.bias.chunk(3)
    u_z, u_r, u = *layer.update.gates.weight.chunk(2), layer.update.candidate.weight

    def decay(delta):
        return torch.exp(-torch.clamp(layer.rate.weight @ delta + layer.rate.bias, min=0))

    h, seen, at = torch.zeros(WIDTH).double(), torch.zeros(CHANNELS).double(), times[0].repeat(CHANNELS)
    for t, x, m in zip(times, values, marks, strict=True):
        if t > query:
            break
        delta = t - at
        gamma = torch.exp(-torch.clamp(model.input_rate * delta + model.input_bias, min=0))
        given_x = torch.cat([m * x + (1 - m) * gamma * seen, m])
        h = decay(delta) * h
        z = torch.sigmoid(w[0] @ given_x + b[0] + u_z @ h)
        r = torch.sigmoid(w[1] @ given_x + b[1] + u_r @ h)
        h = (1 - z) * h + z * torch.tanh(w[2] @ given_x + b[2] + u @ (r * h))
        seen, at = torch.where(m > 0, x, seen), torch.where(m > 0, t, at)
    return decay(query - at) * h


def test_gru_d_follows_its_equations_row_by_row():
    model, batch = make(GRUD), draw()
    torch.manual_seed(5)
    model.input_bias.data = normal(CHANNELS) / 5
    model.layers[0].rate.bias.data = normal(WIDTH) / 5
    queries = jumbled_queries()
    states = model(batch, queries)
    for row in range(3):
        for number, query in enumerate(queries[row]):
            assert largest(states[row, number] - gru_d_reference(model, *one_series(batch, row), query)) < 1e-12


def test_every_decay_of_gru_d_can_learn():
    model, batch = make(GRUD), draw(batch=8, share=0.5)
    model(batch).square().sum().backward()
    for weight in (model.input_rate, model.layers[0].rate.weight, model.layers[0].rate.bias):
        assert (weight.grad != 0).all()


# ---- ODE-RNN


def linear_ode_rnn(**options):
    model = make(ODERNN, depth=0, **options)
    model.layers[0].field[0].weight.data = normal(WIDTH, WIDTH) / 2
    return model, model.layers[0].field[0].weight.detach()


def test_ode_rnn_with_a_linear_field_follows_the_matrix_exponential():
    model, matrix = linear_ode_rnn(step=0.005, max_steps=1000)
    batch, queries = draw(), jumbled_queries()
    states = model(batch, queries)
    update = model.layers[0].update
    for row in range(3):
        times, values, marks = one_series(batch, row)
        for number, query in enumerate(queries[row]):
            h, last = torch.zeros(1, WIDTH).double(), times[0]
            for t, x, m in zip(times, values, marks, strict=True):
                if t > query:
                    break
                h = h @ torch.linalg.matrix_exp(matrix * (t - last)).T
                [part] = update.inputs(torch.cat([x, m]).reshape(1, 1, -1))
                h, last = update(h, part), t
            expected = h @ torch.linalg.matrix_exp(matrix * (query - last)).T
            assert largest(states[row, number] - expected[0]) < 1e-9


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_solvers_have_their_order(solver, order):
    torch.manual_seed(0)
    matrix, state, duration = normal(4, 4), normal(1, 1, 4), torch.ones(1, 1).double()
    exact = state @ torch.linalg.matrix_exp(matrix).T
    errors = [
        largest(Flow(solver, step, 1000)(lambda h: h @ matrix.T, state, duration) - exact) for step in (0.02, 0.01)
    ]
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.15)


def test_each_duration_is_cut_into_its_own_number_of_steps():
    calls = []

    def field(h):
        calls.append(h)
        return -h

    flow = Flow("euler", 0.1, 5)
    durations = torch.tensor([[0.0, 1e-9, 0.1, 0.3, 0.35, 100.0]], dtype=torch.float64)
    together = flow(field, torch.ones(1, 6, 1).double(), durations)
    assert len(calls) == 5
    expected = [1.0, 1 - 1e-9, 0.9, 0.9**3, (1 - 0.35 / 4) ** 4, (1 - 20.0) ** 5]
    assert together.flatten().tolist() == pytest.approx(expected, rel=1e-12)
    for number in range(6):
        alone = flow(field, torch.ones(1, 1, 1).double(), durations[:, number : number + 1])
        assert torch.equal(alone[0, 0], together[0, number])


def test_ode_rnn_has_the_gradients_of_its_solution():
    torch.manual_seed(0)
    model, batch = ODERNN(1, 2, units=3, step=0.3).double().eval(), draw(batch=2, obs=4)
    queries = jumbled_queries(2)
    names = list(dict(model.named_parameters()))

    def states(values, *weights):
        shown = Batch(batch.times, values, batch.observed[..., :1], batch.lengths)
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (shown, queries))

    inputs = [batch.values[..., :1].clone().requires_grad_(), *model.parameters()]
    assert torch.autograd.gradcheck(states, inputs)


# ---- all of them


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n_layers", [1, 2])
def test_rows_of_padding_and_batch_mates_change_nothing(model, n_layers):
    network, batch = make(model, n_layers=n_layers), draw()
    batch.times[1] *= 9
    queries = torch.cat([jumbled_queries(), batch.times[:, 3:4]], dim=1)
    hidden = ~batch.observed.any(-1)
    spoiled = Batch(
        batch.times.masked_fill(hidden, torch.nan),
        batch.values.masked_fill(~batch.observed, torch.nan),
        batch.observed,
        batch.lengths,
    )
    at_rows, at_queries = network(spoiled), network(spoiled, queries)
    for row in range(3):
        times, values, marks = one_series(batch, row)
        alone = Batch(times[None], values[None], marks[None].bool(), torch.tensor([len(times)]))
        assert largest(at_rows[row, ~hidden[row]] - network(alone)[0]) < 1e-10
        assert largest(at_queries[row] - network(alone, queries[row : row + 1])[0]) < 1e-10
    (at_rows.sum() + at_queries.sum()).backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in network.parameters())


@pytest.mark.parametrize("model", MODELS)
def test_a_query_at_the_time_of_a_row_gives_its_state(model):
    network, batch = make(model), draw(share=0.5)
    real = batch.observed.any(-1)
    assert largest((network(batch, batch.times) - network(batch))[real]) < 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_rows_at_one_time_are_taken_in_their_order_and_a_query_sees_them_all(model):
    network, batch = make(model), draw(share=1.0)
    batch.times[:, 4] = batch.times[:, 3]
    changed = batch.values.clone()
    changed[:, 4] += 1
    other = Batch(batch.times, changed, batch.observed, batch.lengths)
    before, after = network(batch), network(other)
    assert torch.equal(before[:, :4], after[:, :4])
    assert largest(before[:, 4] - after[:, 4]) > 1e-6
    assert largest(network(batch, batch.times[:, 3:4])[:, 0] - before[:, 4]) < 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_the_future_is_not_seen_by_queries(model):
    network, batch = make(model), draw(share=1.0)
    changed = batch.values.clone()
    changed[:, 4:] += 1
    other = Batch(batch.times + torch.tensor([0, 0, 0, 0, 0.1, 0.2, 0.3]), changed, batch.observed, batch.lengths)
    queries = torch.cat([batch.times[:, :1] - 0.1, batch.times[:, 3:4], batch.times[:, 3:4] + 1e-7], dim=1)
    queries[:, 2] = torch.minimum(queries[:, 2], (batch.times[:, 3] + batch.times[:, 4]) / 2)
    states = network(batch, queries)
    assert torch.equal(states, network(other, queries))
    assert not states[:, 0].any()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("obs", [0, 2])
def test_empty_series_have_the_state_at_the_start(model, obs):
    network = make(model)
    nothing = torch.zeros(2, obs, CHANNELS, dtype=torch.bool)
    batch = Batch(torch.zeros(2, obs).double(), nothing.double(), nothing, torch.zeros(2, dtype=torch.int64))
    assert torch.equal(network(batch), torch.zeros(2, obs, WIDTH).double())
    assert torch.equal(network(batch, jumbled_queries(2)), torch.zeros(2, 6, WIDTH).double())


@pytest.mark.parametrize("model", MODELS)
def test_gaps_of_any_size_give_finite_states_and_gradients(model):
    network = make(model).float()
    series = Series.of([0, 1e-9, 1e-9, 1.0, 1e6], [[1.0, 2.0, 3.0]] * 5)
    states = network(collate([series]), torch.tensor([[-1e6, 0.5, 2e6]], dtype=torch.float64))
    assert states.dtype == torch.float32
    assert states.isfinite().all()
    states.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (GRUDt, {"gap_unit": 0.0}),
        (ODERNN, {"solver": "dopri"}),
        (ODERNN, {"step": 0.0}),
        (ODERNN, {"max_steps": 0}),
        (ODERNN, {"units": 0}),
        *((model, {"n_layers": 0}) for model in MODELS),
    ],
)
def test_bad_options_are_refused_by_name(model, option):
    with pytest.raises(ValueError, match=next(iter(option))):
        model(CHANNELS, WIDTH, **option)

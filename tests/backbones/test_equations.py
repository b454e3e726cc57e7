"""Neural CDE, Neural ODE, Latent ODEs and CADN against exact solutions, other libraries and their formulas."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from contiformer.backbones import cadn
from contiformer.backbones.cadn import CADN
from contiformer.backbones.flow import Flow, states_along
from contiformer.backbones.latent_ode import LatentODE, LatentODERNN, backwards, standard_divergence
from contiformer.backbones.neural_cde import NeuralCDE
from contiformer.backbones.neural_ode import NeuralODE
from contiformer.backbones.recurrence import Rows
from contiformer.data import Series, collate
from contiformer.data.batch import Batch
from contiformer.paths.interpolation import interpolate
from tests.backbones.batches import CHANNELS, draw, jumbled_queries, one_series
from tests.problems import largest, normal, spaced_times

WIDTH = 6
MODELS = [NeuralCDE, NeuralODE, LatentODE, LatentODERNN, CADN]


def make(model, seed=0, **options):
    torch.manual_seed(seed)
    return model(CHANNELS, WIDTH, **{"units": 7, "dropout": 0.0, **options}).double().eval()


def whole(batch=3, obs=6):
    """Everything observed, and no rows close to each other."""
    values = normal(batch, obs, CHANNELS)
    return Batch(spaced_times(batch, obs), values, torch.ones_like(values).bool(), torch.full((batch,), obs))


def linear_field(network):
    """Turn a network of tanh layers without hidden ones into ``z -> M z``, and give M."""
    torch.manual_seed(7)
    network[0].weight.data = normal(*network[0].weight.shape) / 2
    return network[0].weight.detach()


# ---- one trajectory


def test_states_along_a_linear_trajectory_are_those_of_the_matrix_exponential():
    torch.manual_seed(0)
    matrix, start = normal(3, 3), normal(2, 3)
    since = torch.tensor([[0.0, 0.05, 0.3, 1.7, -0.42], [-2.0, 2.0, 1e-9, -1e-9, 0.7]], dtype=torch.float64)
    states = states_along(Flow("rk4", 0.01, 500), lambda z: z @ matrix.T, start, since)
    for row in range(2):
        for number, t in enumerate(since[row]):
            assert largest(states[row, number] - torch.linalg.matrix_exp(matrix * t) @ start[row]) < 1e-8


def test_states_far_away_take_longer_steps():
    calls = []

    def field(z):
        calls.append(z)
        return torch.zeros_like(z)

    far = torch.tensor([[1e6, 0.1]], dtype=torch.float64)
    assert states_along(Flow("euler", 0.1, 5), field, torch.ones(1, 2).double(), far).eq(1).all()
    assert len(calls) == 10


# ---- Neural CDE


@pytest.mark.parametrize("control", ["cubic", "hermite", "linear", "rectilinear"])
@pytest.mark.parametrize("count_unit", [None, 5.0])
def test_neural_cde_with_a_constant_field_is_the_path_itself(control, count_unit):
    """``z(t) = z(t_1) + M (X(t) - X(t_1))`` with splines through the observations of each channel alone."""
    model, batch = make(NeuralCDE, control=control, count_unit=count_unit), draw()
    last = model.field.network[-2]
    last.weight.data.zero_()
    matrix = last.bias.detach().tanh().view(WIDTH, -1)
    states, queries = model(batch), jumbled_queries()
    asked = model(batch, queries)
    for row in range(3):
        times, values, marks = one_series(batch, row)
        path = control_by_hand(control, times, values, marks, count_unit)
        start = model.initial(path(times[:1])[0])
        kept = batch.observed[row].any(-1)
        expected = start + (path(times) - path(times[:1])) @ matrix.T
        assert largest(states[row, kept] - expected) < 1e-12
        inside = (queries[row] > times[0]) & (queries[row] < times[-1])
        at = queries[row, inside]
        assert largest(asked[row, inside] - start - (path(at, after=False) - path(times[:1])) @ matrix.T) < 1e-12


def control_by_hand(control, times, values, marks, count_unit):
    """X(t), channel by channel."""

    def through(kind, t, x, at):
        return interpolate(kind, t[None], x[None, :, None])(at[None])[0, :, 0]

    def path(at, after=True):
        rows = torch.searchsorted(times, at, right=True) - 1
        columns, counts = [at], []
        for channel in range(CHANNELS):
            seen = marks[:, channel] > 0
            t, x = times[seen], values[seen, channel]
            number = marks[:, channel].cumsum(0)
            if control == "rectilinear":
                held = torch.where(number > 0, x[(number.long() - 1).clamp(min=0)], 0.0)
                columns.append(held[rows])
                counts.append(number[rows])
                continue
            # an observation at both ends, as torchcde has it
            t, x = torch.cat([times[:1], t, times[-1:]]), torch.cat([x[:1], x, x[-1:]])
            if control != "cubic":
                t, x = times, through("linear", t, x, times)
            columns.append(through(control, t, x, at))
            counts.append(through(control, times, number, at))
        counts = [] if count_unit is None else [count / count_unit for count in counts]
        return torch.stack([columns[0], *counts, *columns[1:]], dim=-1)

    return path


def smooth_cde(**options):
    """Without the corners of ReLU, at which solvers with different steps differ."""
    model = make(NeuralCDE, **options)
    model.field.network = nn.Sequential(
        *(nn.SiLU() if isinstance(layer, nn.ReLU) else layer for layer in model.field.network)
    )
    return model


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("control", ["cubic", "hermite", "linear"])
def test_neural_cde_is_that_of_torchcde_on_the_same_path_and_weights(control, missing):
    torchcde = pytest.importorskip("torchcde")
    model = smooth_cde(control=control, count_unit=5.0, step=0.02)
    torch.manual_seed(1)
    batch = whole(batch=1)
    marks = batch.observed.clone()
    if missing:
        marks[0, 0, 1] = marks[0, 2, 0] = marks[0, 3, 2] = marks[0, 5, 0] = False
    times = batch.times[0]
    given = torch.where(marks, batch.values, torch.nan)
    x = torch.cat([times[None, :, None], marks.cumsum(1) / 5.0, given], dim=-1)
    coefficients = {
        "cubic": torchcde.natural_cubic_coeffs,
        "hermite": torchcde.hermite_cubic_coefficients_with_backward_differences,
        "linear": torchcde.linear_interpolation_coeffs,
    }[control](x, times)
    path = (torchcde.LinearInterpolation if control == "linear" else torchcde.CubicSpline)(coefficients, times)

    class TheirField(nn.Module):
        def forward(self, t, z):
            return model.field.network(z).unflatten(-1, (WIDTH, -1))

    start = model.initial(path.evaluate(times[0]))
    parts = torch.linspace(0, 1, 13, dtype=torch.float64)[:-1]
    grid = torch.cat([(times[:-1, None] + times.diff().unsqueeze(1) * parts).flatten(), times[-1:]])
    with torch.no_grad():
        # at the corner of a line each step has the slope of its own side
        options = {"method": "rk4", "adjoint": False, "options": {"perturb": True}}
        theirs = torchcde.cdeint(path, TheirField(), start, grid, **options)
    shown = Batch(batch.times, torch.where(marks, batch.values, 0.0), marks, batch.lengths)
    assert largest(model(shown) - theirs[:, ::12]) < 1e-6
    between = [5, 17, 30, 50]
    assert largest(model(shown, grid[between].unsqueeze(0)) - theirs[:, between]) < 1e-6
    assert largest(theirs[:, ::12].diff(dim=1)) > 0.1


def test_rectilinear_neural_cde_is_that_of_torchcde_on_the_same_path_and_weights():
    torchcde = pytest.importorskip("torchcde")
    model = smooth_cde(control="rectilinear", count_unit=None, step=0.02)
    torch.manual_seed(1)
    batch = whole(batch=1)
    # a jump is one step of ours
    batch.values.mul_(0.1)
    x = torch.cat([batch.times.unsqueeze(-1), batch.values], dim=-1)
    knots = torchcde.linear_interpolation_coeffs(x, rectilinear=0)
    z, states = model.initial(x[:, 0]), []
    for before, after in zip(knots[:, :-1].unbind(1), knots[:, 1:].unbind(1), strict=True):
        states.append(z)
        path = torchcde.LinearInterpolation(torch.stack([before, after], dim=1))

        class TheirField(nn.Module):
            def forward(self, t, z):
                return model.field.network(z).unflatten(-1, (WIDTH, -1))

        options = {"step_size": 0.1}
        with torch.no_grad():
            ends = torchcde.cdeint(path, TheirField(), z, path.interval, method="rk4", options=options, adjoint=False)
        z = ends[:, -1]
    assert largest(model(batch) - torch.stack([*states[::2], z], dim=1)) < 1e-6
    assert largest(z - states[0]) > 0.1


def test_rectilinear_neural_cde_is_causal_and_takes_rows_at_one_time_in_their_order():
    model, batch = make(NeuralCDE, control="rectilinear"), draw(share=1.0)
    assert model.capabilities.causal
    batch.times[:, 4] = batch.times[:, 3]
    changed = batch.values.clone()
    changed[:, 4:] += 1
    other = Batch(batch.times, changed, batch.observed, batch.lengths)
    before, after = model(batch), model(other)
    assert torch.equal(before[:, :4], after[:, :4])
    assert largest(before[:, 4] - after[:, 4]) > 1e-6
    assert largest(model(batch, batch.times[:, 3:4])[:, 0] - before[:, 4]) < 1e-12
    early = torch.cat([batch.times[:, :1] - 0.1, batch.times[:, 3:4] - 1e-9], dim=1)
    assert torch.equal(model(batch, early), model(other, early))
    assert not model(batch, early)[:, 0].any()


def test_hermite_rows_do_not_depend_on_later_rows_and_cubic_ones_do():
    batch = whole()
    changed = batch.values.clone()
    changed[:, 4:] += 1
    other = Batch(batch.times, changed, batch.observed, batch.lengths)
    for control, moves in (("hermite", False), ("linear", False), ("cubic", True)):
        model = make(NeuralCDE, control=control)
        assert not model.capabilities.causal
        assert (largest((model(batch) - model(other))[:, :4]) > 1e-6) == moves


def test_neural_cde_goes_on_by_an_ode_before_and_after_its_rows():
    model, batch = make(NeuralCDE, step=0.02, max_steps=100), draw()
    model.beyond = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False)).double()
    matrix = linear_field(model.beyond)
    rows = model(batch)
    far = torch.tensor([0.3, 0.9], dtype=torch.float64)
    later, earlier = (model(batch, batch.times[:, [end]] + way * far) for end, way in ((-1, 1), (0, -1)))
    for number, t in enumerate(far):
        assert largest(later[:, number] - rows[:, -1] @ torch.linalg.matrix_exp(matrix * t).T) < 1e-6
        assert largest(earlier[:, number] - rows[:, 0] @ torch.linalg.matrix_exp(-matrix * t).T) < 1e-6


@pytest.mark.parametrize("control", ["cubic", "rectilinear"])
def test_neural_cde_at_the_time_of_a_row_has_its_state(control):
    model, batch = make(NeuralCDE, control=control), draw(share=0.5)
    real = batch.observed.any(-1)
    assert largest((model(batch, batch.times) - model(batch))[real]) < 1e-10


# ---- Neural ODE


def test_neural_ode_is_one_linear_trajectory_through_the_last_hidden_vector():
    model, batch, queries = make(NeuralODE, depth=0, step=0.005, max_steps=1000), draw(), jumbled_queries()
    matrix = linear_field(model.field)
    states = model(batch, queries)
    for row in range(3):
        times, values, marks = one_series(batch, row)
        gaps = torch.log1p(times.diff(prepend=times[:1]) / 0.01).unsqueeze(-1)
        hidden, _ = model.encoder(torch.cat([values, marks, gaps], dim=-1).unsqueeze(0))
        for number, t in enumerate(queries[row] - times[-1]):
            assert largest(states[row, number] - torch.linalg.matrix_exp(matrix * t) @ hidden[0, -1]) < 1e-8
    at_rows = model(batch)
    real = batch.observed.any(-1)
    assert largest((at_rows - model(batch, batch.times))[real]) < 1e-12


# ---- Latent ODE


def test_the_divergence_is_that_of_torch():
    mean, std = normal(4, 5), torch.rand(4, 5).double() + 0.1
    law = Independent(Normal(mean, std), 1)
    expected = kl_divergence(law, Independent(Normal(torch.zeros_like(mean), torch.ones_like(std)), 1))
    assert largest(standard_divergence(mean, std) - expected) < 1e-12


def test_the_bound_is_the_evidence_where_the_posterior_is_exact():
    """``z ~ N(0, 1)`` and n observations ``x_i = z + noise``: the posterior is normal, and the evidence, too."""
    torch.manual_seed(0)
    noise, n = 0.8, 4
    x = torch.tensor([0.3, 1.4, -0.2, 0.9], dtype=torch.float64)
    precision = 1 + n / noise**2
    mean, std = float(x.sum() / noise**2 / precision), precision**-0.5
    model = LatentODE(1, 1, latents=1, encoder_size=2, units=3, dropout=0.0, kl_weight=1.0).double().train()
    with torch.no_grad():
        for weight in [*model.to_initial.parameters(), *model.field.parameters(), model.out.bias]:
            weight.zero_()
        model.to_initial[-1].bias.copy_(torch.tensor([mean, math.log(math.expm1(std - 1e-4))]))
        model.out.weight.fill_(1.0)
    draws = 8000
    times = torch.linspace(0, 1, n, dtype=torch.float64).expand(draws, -1)
    seen = torch.ones(draws, n, 1, dtype=torch.bool)
    states = model(Batch(times, x.view(1, n, 1).expand(draws, -1, -1), seen, torch.full((draws,), n)))
    likelihood = Normal(states.squeeze(-1), noise).log_prob(x).sum(1)
    bound = likelihood - model.extra_loss()
    covariance = torch.ones(n, n).double() + noise**2 * torch.eye(n)
    evidence = MultivariateNormal(torch.zeros(n).double(), covariance).log_prob(x)
    spread = float(bound.detach().std()) / draws**0.5
    assert float(bound.detach().mean()) == pytest.approx(float(evidence), abs=5 * spread)
    assert spread < 0.02
    # another posterior has a smaller bound
    with torch.no_grad():
        model.to_initial[-1].bias[0] += 0.5
    states = model(Batch(times, x.view(1, n, 1).expand(draws, -1, -1), seen, torch.full((draws,), n)))
    worse = Normal(states.squeeze(-1), noise).log_prob(x).sum(1) - model.extra_loss()
    assert float(worse.detach().mean()) < float(evidence) - 5 * spread


@pytest.mark.parametrize("model", [LatentODE, LatentODERNN])
def test_the_extra_loss_is_that_of_the_last_training_pass_and_given_once(model):
    network, batch = make(model, kl_weight=0.5), draw()
    network(batch)
    assert network.extra_loss() is None
    network.train()
    first, second = network(batch), network(batch)
    assert largest(first - second) > 1e-6
    copied = copy.deepcopy(network)
    assert copied.extra_loss() is None
    mean, std = network.initial(Rows.of(batch, torch.float64))
    extra = network.extra_loss()
    assert largest(extra - 0.5 * standard_divergence(mean, std)) < 1e-12
    extra.sum().backward()
    assert all(p.grad is not None for p in network.encoder.parameters())
    assert network.extra_loss() is None
    network(batch)
    network.eval()(batch)
    assert network.extra_loss() is None


def test_latent_ode_encodes_from_the_last_row_to_the_first_and_decodes_from_there():
    model, batch, queries = make(LatentODE, depth=1, latents=4, step=0.02), draw(), jumbled_queries()
    states = model(batch, queries)
    for row in range(3):
        times, values, marks = (x.flip(0) for x in one_series(batch, row))
        gaps = (-times.diff(prepend=times[:1])).unsqueeze(-1)
        hidden, _ = model.encoder(torch.cat([values, marks, gaps], dim=-1).unsqueeze(0))
        z = model.to_initial(hidden[0, -1])[:4]
        since = (queries[row] - times[-1]).unsqueeze(0)
        expected = model.out(states_along(Flow("rk4", 0.01, 500), model.field, z.unsqueeze(0), since))
        assert largest(states[row] - expected[0]) < 1e-7


def test_latent_ode_rnn_encodes_by_an_ode_rnn_that_runs_backwards():
    model, batch = make(LatentODERNN, latents=4), draw()
    mean, _ = model.initial(Rows.of(batch, torch.float64))
    [layer] = model.encoder
    for row in range(3):
        times, values, marks = (x.flip(0) for x in one_series(batch, row))
        h, last = torch.zeros(1, 40).double(), times[0]
        for t, x, m in zip(times, values, marks, strict=True):
            h = model.flow(layer.field, h.unsqueeze(0), (last - t).reshape(1, 1))[0]
            [part] = layer.update.inputs(torch.cat([x, m]).reshape(1, 1, -1))
            h, last = layer.update(h, part), t
        assert largest(mean[row] - model.to_initial(h)[0, :4]) < 1e-12


def test_rows_backwards_are_the_same_rows():
    nan = float("nan")
    batch = collate([Series.of([0, 0.5, 1, 3], [[1.0], [nan], [3.0], [4.0]]), Series.of([2], [[5.0]])])
    rows = backwards(Rows.of(batch, torch.float64))
    assert rows.times.tolist() == [[3.0, 1.0, 0.0, 0.0], [2.0] * 4]
    assert rows.values.squeeze(-1).tolist() == [[4.0, 3.0, 1.0, 0.0], [5.0, 0.0, 0.0, 0.0]]
    assert rows.gaps.tolist() == [[0.0, -2.0, -1.0, 0.0], [0.0] * 4]


# ---- CADN


def cadn_reference(model, times, values, marks, query):
    """The integrals as matrices that are solved together with the state, for one series."""
    [layer] = model.layers

    def slopes(z, t):
        k, v = layer.to_key(z).exp(), layer.to_value(z)
        return layer.field(z, t.reshape(1)), k, torch.outer(v, k)

    def solve(state, t, duration):
        count = max(1, math.ceil(float(duration) / model.flow.step - 1e-6)) if duration > 0 else 0
        for _ in range(count):
            step = duration / count
            first = slopes(state[0], t)
            second = slopes(state[0] + step / 2 * first[0], t + step / 2)
            third = slopes(state[0] + step / 2 * second[0], t + step / 2)
            fourth = slopes(state[0] + step * third[0], t + step)
            state = [
                x + step / 6 * (a + 2 * b + 2 * c + d)
                for x, a, b, c, d in zip(state, first, second, third, fourth, strict=True)
            ]
            t = t + step
        return state

    if query < times[0]:
        return torch.zeros(WIDTH).double()
    state, last = [torch.zeros(*shape).double() for shape in ((WIDTH,), (WIDTH,), (WIDTH, WIDTH))], times[0] - 0.01
    for t, x, m in zip(times, values, marks, strict=True):
        if t > query:
            break
        state = solve(state, last, t - last)
        [part] = layer.update.inputs(torch.cat([x, m]).reshape(1, 1, -1))
        state[0], last = layer.update(state[0][None], part)[0], t
    z, keys, pairs = solve(state, last, query - last)
    q = layer.to_query(z).exp()
    return torch.tanh(pairs @ q / (keys @ q)) + z


def test_cadn_attends_to_the_integral_over_its_own_past():
    model, batch, queries = make(CADN, step=0.07), draw(), jumbled_queries()
    asked, at_rows = model(batch, queries), model(batch)
    for row in range(3):
        series = one_series(batch, row)
        for number, query in enumerate(queries[row]):
            assert largest(asked[row, number] - cadn_reference(model, *series, query)) < 1e-11
        expected = torch.stack([cadn_reference(model, *series, t) for t in series[0]])
        assert largest(at_rows[row, batch.observed[row].any(-1)] - expected) < 1e-11


def test_cadn_carries_its_sums_from_block_to_block_of_rows(monkeypatch):
    model, batch, queries = make(CADN, n_layers=2), draw(obs=20), jumbled_queries()
    expected = model(batch), model(batch, queries)
    monkeypatch.setattr(cadn, "_BLOCK", 3)
    assert largest(model(batch) - expected[0]) < 1e-12
    assert largest(model(batch, queries) - expected[1]) < 1e-12


def test_cadn_bears_scores_that_are_far_from_each_other():
    model, batch = make(CADN).float(), draw()
    model.layers[0].to_key.weight.data *= 300
    model.layers[0].to_query.weight.data *= 300
    states = model(Batch(batch.times, batch.values.float(), batch.observed, batch.lengths), jumbled_queries())
    assert states.isfinite().all()
    states.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# ---- all of them


@pytest.mark.parametrize("model", MODELS)
def test_gaps_of_any_size_give_finite_states_and_gradients(model):
    network = make(model).float()
    series = Series.of([0, 1e-9, 1e-9, 1.0, 100.0], [[1.0, 2.0, 3.0]] * 5)
    states = network(collate([series]), torch.tensor([[-100.0, 0.5, 200.0]], dtype=torch.float64))
    assert states.dtype == torch.float32
    assert states.isfinite().all()
    states.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (NeuralCDE, {"control": "quintic"}),
        (NeuralCDE, {"count_unit": 0.0}),
        (NeuralCDE, {"units": 0}),
        (NeuralODE, {"gap_unit": 0.0}),
        (NeuralODE, {"units": 0}),
        (NeuralODE, {"solver": "dopri5"}),
        (LatentODE, {"latents": 0}),
        (LatentODE, {"kl_weight": -1.0}),
        (CADN, {"lead": 0.0}),
        (CADN, {"units": 0}),
        *((model, {"n_layers": 0}) for model in MODELS),
        *((model, {"step": 0.0}) for model in MODELS),
    ],
)
def test_bad_options_are_refused_by_name(model, option):
    with pytest.raises(ValueError, match=next(iter(option))):
        model(CHANNELS, WIDTH, **option)

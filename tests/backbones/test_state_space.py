"""S5 and CRU against their recurrences, one row at a time, and against exact solutions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from contiformer.backbones.cru import CRU, Belief, Transition, flow_and_noise
from contiformer.backbones.recurrence import Rows
from contiformer.backbones.s5 import S5, LinearSystem, hippo_eigenvectors, linear_scan
from contiformer.data import Series, collate
from contiformer.data.batch import Batch
from tests.backbones.batches import CHANNELS, draw, jumbled_queries, one_series
from tests.problems import largest, normal

WIDTH = 6


def make_s5(seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"state_size": 8, "blocks": 2, "dropout": 0.0, "n_layers": 2}
    return S5(CHANNELS, WIDTH, **{**sizes, **options}).double().eval()


# ---- S5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.booleans(), st.integers(0, 99))
def test_the_parallel_scan_is_the_sequential_recurrence(n, is_complex, seed):
    torch.manual_seed(seed)
    dtype = torch.complex128 if is_complex else torch.float64
    a, b = torch.randn(2, n, 3, dtype=dtype), torch.randn(2, n, 3, dtype=dtype)
    x, expected = torch.zeros(2, 3, dtype=dtype), []
    for k in range(n):
        x = a[:, k] * x + b[:, k]
        expected.append(x)
    states = linear_scan(a, b)
    assert states.shape == b.shape
    assert all(torch.allclose(states[:, k], x, rtol=1e-10, atol=1e-12) for k, x in enumerate(expected))


def test_the_parallel_scan_has_the_gradients_of_the_recurrence():
    a, b = normal(1, 5, 2).requires_grad_(), normal(1, 5, 2).requires_grad_()
    assert torch.autograd.gradcheck(linear_scan, (a, b))


def test_the_system_begins_at_hippo():
    values, vectors = hippo_eigenvectors(6)
    n = torch.arange(6, dtype=torch.float64)
    legs = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(i + 1):
            legs[i, j] = -(i + 1) if i == j else -((2 * i + 1) ** 0.5) * (2 * j + 1) ** 0.5
    normal_part = legs + torch.outer((n + 0.5).sqrt(), (n + 0.5).sqrt())
    again = vectors * values @ vectors.mH
    assert largest(2 * again.real - normal_part) < 1e-12
    assert (values.imag < 0).all()
    assert largest(values.real + 0.5) < 1e-12


def test_an_input_is_held_over_the_gap_before_its_row():
    """Against the matrix exponential of the system with its input as a further, constant state."""
    system = LinearSystem(4, 6, 1, (1.0, 10.0)).double()
    rate, gap = torch.view_as_complex(system.eigenvalues.detach()), torch.tensor([[0.13, 0.0]], dtype=torch.float64)
    decay, gain = (x.detach() for x in system.discretise(rate, gap))
    for p in range(3):
        fast = rate[p] * system.log_scale[p].exp().detach()
        generator = torch.zeros(2, 2, dtype=torch.complex128)
        generator[0, 0], generator[0, 1] = fast, fast / rate[p]
        exact = torch.linalg.matrix_exp(0.13 * generator)
        assert abs(complex(decay[0, 0, p] - exact[0, 0])) < 1e-12
        assert abs(complex(gain[0, 0, p] - exact[0, 1])) < 1e-12
    assert largest((decay[0, 1] - 1).abs()) == largest(gain[0, 1].abs()) == 0


def s5_reference(model, times, values, marks, query=None):
    """Row by row with complex matrices; the state of the last row up to the query, or of the query."""
    us = [model.project(torch.cat([x, m])) for x, m in zip(values, marks, strict=True)]
    ask = model.query
    for layer in model.layers:
        system = layer.system
        rate, step = torch.view_as_complex(system.eigenvalues), system.log_scale.exp()
        into, out = torch.view_as_complex(system.into), torch.view_as_complex(system.out)[0]

        def finish(u, x, layer=layer, system=system, out=out):
            y = 2 * (out @ x).real + system.through * layer.norm(u)
            return u + y * torch.sigmoid(layer.gate(F.gelu(y)))

        x, states, last, outputs = torch.zeros_like(rate), [], times[0], []
        for t, u in zip(times, us, strict=True):
            held = t - last if t > last else 0.01
            gain = ((rate * step * held).exp() - 1) / rate
            x = (rate * step * (t - last)).exp() * x + gain * (into @ layer.norm(u).to(into.dtype))
            states.append(x)
            outputs.append(finish(u, x))
            last = t
        if query is not None:
            seen = [i for i, t in enumerate(times) if t <= query]
            now = torch.zeros_like(rate)
            if seen:
                decay = (rate * step * (query - times[seen[-1]])).exp()
                now = decay * states[seen[-1]] + (decay - 1) / rate * (into @ layer.norm(ask).to(into.dtype))
            ask = finish(ask, now)
        us = outputs
    return torch.stack(us) if query is None else ask


def test_s5_follows_its_recurrence_row_by_row():
    model, batch, queries = make_s5(), draw(), jumbled_queries()
    batch.times[:, 4] = batch.times[:, 3]
    at_rows, asked = model(batch), model(batch, queries)
    for row in range(3):
        series = one_series(batch, row)
        assert largest(at_rows[row, batch.observed[row].any(-1)] - s5_reference(model, *series)) < 1e-12
        for number, query in enumerate(queries[row]):
            # without any row before it a query has no time since
            expected = s5_reference(model, *series, query)
            assert largest(asked[row, number] - expected) < 1e-12


def test_s5_in_both_directions_is_itself_in_a_mirror():
    model, batch, queries = make_s5(bidirectional=True), draw(share=1.0), jumbled_queries()
    assert not model.capabilities.causal
    mirrored = make_s5(bidirectional=True)
    mirrored.load_state_dict(model.state_dict())
    for layer in mirrored.layers:
        layer.system.out.data = layer.system.out.data.flip(0)
    other = Batch(-batch.times.flip(1), batch.values.flip(1), batch.observed.flip(1), batch.lengths)
    real = batch.observed.any(-1)
    assert largest((model(batch) - mirrored(other).flip(1))[real]) < 1e-12
    assert largest(model(batch, queries) - mirrored(other, -queries)) < 1e-12


def test_s5_in_both_directions_does_not_see_padding_or_batch_mates():
    model, batch, queries = make_s5(bidirectional=True), draw(), jumbled_queries()
    for row in range(3):
        times, values, marks = one_series(batch, row)
        alone = Batch(times[None], values[None], marks[None].bool(), torch.tensor([len(times)]))
        real = batch.observed[row].any(-1)
        assert largest(model(batch)[row, real] - model(alone)[0]) < 1e-12
        assert largest(model(batch, queries)[row] - model(alone, queries[row : row + 1])[0]) < 1e-12


def test_s5_normalises_before_or_after():
    after = make_s5(prenorm=False, n_layers=1)
    states = after(draw())
    assert largest(states.mean(-1)) < 1e-12
    assert largest(make_s5(n_layers=1)(draw()).mean(-1)) > 1e-3


def test_s5_stays_stable_when_eigenvalues_are_driven_out_and_gaps_are_long():
    model = make_s5().float()
    for layer in model.layers:
        layer.system.eigenvalues.data[:, 0] = 3.0
    series = Series.of([0, 1e-9, 1e-9, 1.0, 1e6], [[1.0, 2.0, 3.0]] * 5)
    states = model(collate([series]), torch.tensor([[-1e6, 0.5, 2e6]], dtype=torch.float64))
    assert states.isfinite().all()
    states.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# ---- CRU


def test_flow_and_noise_are_those_of_the_matrix_exponential():
    torch.manual_seed(0)
    matrix, diffusion, gaps = normal(4, 5, 5), torch.rand(5).double(), torch.tensor([0.0, 0.01, 0.7, 3.0]).double()
    flow, noise = flow_and_noise(matrix, diffusion, gaps)
    for a, gap, one_flow, one_noise in zip(matrix, gaps, flow, noise, strict=True):
        exact = torch.linalg.matrix_exp(a * gap)
        # Van Loan (1978)
        block = torch.cat([torch.cat([a, diffusion.diag()], 1), torch.cat([torch.zeros(5, 5).double(), -a.T], 1)])
        exact_noise = torch.linalg.matrix_exp(block * gap)[:5, 5:] @ exact.T
        assert largest(one_flow - exact) < 1e-9 * (1 + largest(exact))
        assert largest(one_noise - exact_noise) < 1e-9 * (1 + largest(exact_noise))


def make_cru(seed=0, **options):
    torch.manual_seed(seed)
    model = CRU(CHANNELS, WIDTH, **{"latents": 6, "units": 8, "n_layers": 1, "dropout": 0.0, **options}).double().eval()
    with torch.no_grad():
        for name, weight in model.transition.named_parameters():
            if name == "matrices":
                weight.mul_(5)
    return model


def dense_kalman(model, times, values, marks, query):
    """Mean and covariance at the query, by the textbook: matrices of full size, and an inverse."""
    transition, size = model.transition, 6
    matrix = (transition.matrices[0] * transition.band).detach() * model.time_scale
    noise = F.softplus(transition.log_noise).detach().diag() * model.time_scale
    look = torch.eye(size // 2, size, dtype=torch.float64)

    def later(mean, cov, gap):
        zero = torch.zeros(size, size, dtype=torch.float64)
        block = torch.cat([torch.cat([matrix, noise], 1), torch.cat([zero, -matrix.T], 1)])
        exp = torch.linalg.matrix_exp(block * gap)
        flow = exp[:size, :size]
        return flow @ mean, flow @ cov @ flow.T + exp[:size, size:] @ flow.T

    mean, cov = torch.zeros(size).double(), F.softplus(model.prior).detach().flatten().diag()
    last = times[0]
    for t, x, m in zip(times, values, marks, strict=True):
        if t > query:
            break
        mean, cov = later(mean, cov, t - last)
        y, variance = (part.detach() for part in model.encoded(torch.cat([x, m])))
        gain = cov @ look.T @ torch.linalg.inv(look @ cov @ look.T + variance.diag())
        mean, cov = mean + gain @ (y - look @ mean), (torch.eye(size).double() - gain @ look) @ cov
        last = t
    return later(mean, cov, query - last) if query >= times[0] else (mean, cov)


def test_cru_is_the_exact_kalman_filter_where_the_model_is_linear_and_pairs_are_independent():
    """One matrix, with diagonal blocks: then nothing is lost by keeping the diagonals only."""
    model, batch, queries = make_cru(basis=1, bandwidth=0), draw(), jumbled_queries()
    rows = Rows.of(batch, torch.float64)
    predict = model.transition.prepared()
    after = model.filtered(rows, predict)
    passed, elapsed = rows.until(queries)
    flat = Belief(*(part.flatten(0, 1) for part in after.pick(passed)))
    found = predict(flat, (elapsed * model.time_scale).flatten())
    states = model(batch, queries)
    for row in range(3):
        for number, query in enumerate(queries[row]):
            mean, cov = dense_kalman(model, *one_series(batch, row), query)
            at = 6 * row + number
            assert largest(found.mean[at] - mean) < 1e-9
            assert largest(found.upper[at] - cov.diagonal()[:3]) < 1e-9 * largest(cov)
            assert largest(found.lower[at] - cov.diagonal()[3:]) < 1e-9 * largest(cov)
            assert largest(found.side[at] - cov[:3, 3:].diagonal()) < 1e-9 * largest(cov)
            assert largest(cov[:3, :3] - cov.diagonal()[:3].diag()) < 1e-9 * largest(cov)
            law = Belief(mean, cov.diagonal()[:3], cov.diagonal()[3:], cov[:3, 3:].diagonal())
            assert largest(states[row, number] - model.decoded(law)) < 1e-7


def test_an_observation_of_half_the_state_by_hand():
    """Variance 3 and noise 1: the gain is 3/4, and half of it for the other half with covariance 1.5."""
    three, one = torch.tensor([[3.0]]), torch.tensor([[1.0]])
    law = Belief(torch.tensor([[2.0, -1.0]]), three, 2 * one, 1.5 * one).given(6 * one, one)
    assert law.mean.tolist() == [[5.0, 0.5]]
    assert [float(x) for x in (law.upper, law.lower, law.side)] == [0.75, 2 - 1.5**2 / 4, 0.375]


def test_the_transition_mixes_banded_matrices_by_the_mean():
    torch.manual_seed(0)
    transition = Transition(8, 3, 1).double()
    band = transition.band
    assert band.sum().item() == 4 * (4 + 2 * 3)
    assert not transition.matrices[:, ~band].any()
    law = Belief(normal(2, 8), *torch.rand(3, 2, 4).double().add(1).unbind(0))
    weights = transition.mixing(law.mean).softmax(-1)
    for row in range(2):
        matrix = sum(weights[row, k] * transition.matrices[k] for k in range(3))
        expected = torch.linalg.matrix_exp(0.3 * matrix) @ law.mean[row]
        assert (
            largest(transition.prepared()(law, torch.full((2,), 0.3, dtype=torch.float64)).mean[row] - expected) < 1e-12
        )


def test_cru_keeps_its_covariance_positive():
    model = make_cru(basis=4)
    law = model.filtered(Rows.of(draw(obs=40), torch.float64), model.transition.prepared())
    assert (law.upper > 0).all()
    assert (law.lower > 0).all()
    assert (law.upper * law.lower >= law.side.square()).all()


def test_cru_before_the_first_row_knows_the_prior_alone():
    model, batch = make_cru(), draw()
    early = batch.times[:, :1] - torch.tensor([0.1, 5.0]).double()
    states = model(batch, early)
    assert largest(states - states[0, 0]) < 1e-12
    assert largest(model(batch, batch.times[:, :1]) - states[:, :1]) > 1e-3


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (S5, {"state_size": 12, "blocks": 8}),
        (S5, {"slowest": 0.0}),
        (S5, {"first_step": 0.0}),
        (S5, {"n_layers": 0}),
        (CRU, {"latents": 5}),
        (CRU, {"bandwidth": -1}),
        (CRU, {"basis": 0}),
        (CRU, {"time_scale": 0.0}),
    ],
)
def test_bad_options_are_refused_by_name(model, option):
    with pytest.raises(ValueError, match=next(iter(option))):
        model(CHANNELS, WIDTH, **option)

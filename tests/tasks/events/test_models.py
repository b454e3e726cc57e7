"""Properties of every model of event sequences."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from contiformer.backbones.contiformer import ContiFormerBackbone
from contiformer.data import EventSequence, EventSet
from contiformer.data.batch import collate_events
from contiformer.data.scaling import EventScaling
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import ResolutionWarning
from contiformer.tasks.events import EventTask, IntegralRule, Memory, expect, intervals, log_likelihood
from contiformer.tasks.events.build import STATE_INTENSITIES
from contiformer.tasks.events.encoder import EventEncoder, LastStateModel
from contiformer.tasks.events.hawkes import HawkesModel
from contiformer.tasks.events.nhp import NeuralHawkesModel
from contiformer.tasks.events.rmtpp import ExponentialIntensity, RMTPPEncoder
from contiformer.tasks.events.sahp import ConvergingIntensity, SAHPEncoder

D = 8
K = 3


def rmtpp(scaling, **options):
    return LastStateModel(RMTPPEncoder(scaling, D, **options), ExponentialIntensity(D, scaling))


def sahp(scaling, **options):
    return LastStateModel(SAHPEncoder(scaling, D, **options), ConvergingIntensity(D, scaling))


def contiformer(head):
    def build(scaling):
        return LastStateModel(
            EventEncoder(ContiFormerBackbone(D, D, causal=True, n_heads=2), scaling),
            STATE_INTENSITIES[head](D, scaling),
        )

    return build


BUILD = {
    "hawkes": HawkesModel,
    "hawkes-shared": lambda scaling: HawkesModel(scaling, decay="shared"),
    "nhp": lambda scaling: NeuralHawkesModel(scaling, D),
    "rmtpp": rmtpp,
    "rmtpp-relu": lambda scaling: rmtpp(scaling, n_layers=2, cell="relu"),
    "rmtpp-lstm": lambda scaling: rmtpp(scaling, cell="lstm"),
    "sahp": sahp,
    "sahp-wait": lambda scaling: sahp(scaling, n_layers=2, n_heads=2, shift="wait"),
    **{f"contiformer-{head}": contiformer(head) for head in STATE_INTENSITIES},
}


def draw(seed=0, n=6, longest=9, types=K):
    """Sequences of several lengths, some events at one time."""
    rng = np.random.default_rng(seed)
    sequences = []
    for number in range(n):
        length = longest if number == 0 else int(rng.integers(2, longest))
        waits = rng.exponential(size=length) * (rng.random(length) > 0.2)
        waits[0] = 5.0
        sequences.append(EventSequence.of(np.cumsum(waits), rng.integers(0, types, length)))
    return EventSet(sequences, num_types=types)


TRAIN = EventScaling.fit(draw(1, 30))


def build(name, scaling=TRAIN, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    model = BUILD[name](scaling)
    with torch.no_grad():
        for parameter in model.parameters():  # nothing stays at a start that hides what it is there for
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def batch_of(data):
    return collate_events(list(TRAIN.apply(data)))


def every_rate(model, events, moments=5):
    memory = model.remember(events)
    dtype = next(model.parameters()).dtype
    elapsed = torch.linspace(0, 3, moments, dtype=dtype).expand(*events.times.shape, -1)
    return model.rates(memory, elapsed)


all_models = pytest.mark.parametrize("name", BUILD)


@all_models
@torch.no_grad()
def test_the_future_changes_nothing(name):
    model, events = build(name), batch_of(draw(2))
    events.times[0, 3:6] = events.times[0, 4].clone()  # three at one time
    before = every_rate(model, events)
    for last in (0, 2, 3, 4, 7):
        times, types = events.times.clone(), (events.types + 1) % K
        types[:, : last + 1] = events.types[:, : last + 1]
        times[:, last + 1 :] = torch.where(
            times[:, last + 1 :] > times[:, [last]], times[:, last + 1 :] * 1.7, times[:, [last]]
        )
        changed = every_rate(model, replace(events, times=times, types=types))
        assert torch.equal(changed[:, : last + 1], before[:, : last + 1]), last
        shown = events.mask[:, last + 1 :]
        assert not torch.equal(changed[:, last + 1 :][shown], before[:, last + 1 :][shown])


@all_models
@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_padding_and_batch_mates_change_nothing(name, dtype, tolerance):
    model, data = build(name, dtype=dtype), draw(3)
    together = batch_of(data)
    scored = intervals(model, together)
    likelihood = log_likelihood(model, scored)
    assert likelihood.dtype == dtype
    assert bool((likelihood[~scored.known] == 0).all())
    assert all(bool(x.isfinite().all()) for x in model.remember(together).rows.values())
    for row, sequence in enumerate(data):
        alone = log_likelihood(model, intervals(model, batch_of(EventSet([sequence], num_types=K))))
        torch.testing.assert_close(likelihood[row, : len(sequence) - 1], alone[0], atol=tolerance, rtol=tolerance)


@all_models
@torch.no_grad()
def test_float32_is_near_float64(name):
    events = batch_of(draw(4))
    wide = every_rate(build(name), events)[events.mask]
    narrow = every_rate(build(name, dtype=torch.float32), events)[events.mask]
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), wide, atol=1e-4, rtol=1e-3)


@all_models
def test_mixed_precision_is_near_full_precision(name):
    """As the trainer has it on graphics cards."""
    if name == "rmtpp-lstm":
        pytest.skip("PyTorch's LSTM in bfloat16 needs a CPU with AVX-512")
    model, events = build(name, dtype=torch.float32), batch_of(draw(4))
    task = EventTask(model, unit=1.0)
    exact, count = task.loss_terms(events)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = task.loss_terms(events)
    assert float((total - exact).detach().abs() / count) < 0.05
    total.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


@all_models
@torch.no_grad()
@pytest.mark.parametrize("strength", [0.1, 2.0])
def test_bound(name, strength):
    model, events = build(name), batch_of(draw(5))
    for parameter in model.parameters():
        parameter.add_(strength * torch.randn_like(parameter))
    memory = model.remember(events)
    for _ in range(8):
        low, high = (torch.rand(2, *events.times.shape, dtype=torch.float64) * 3).square().sort(0).values
        bound = model.bound(memory, low, high)
        share = torch.linspace(0, 1, 101, dtype=torch.float64)
        inside = model.total(memory, torch.lerp(low[..., None], high[..., None], share))
        assert bool((inside.amax(-1) <= bound * (1 + 1e-12))[events.mask].all())
        same = model.bound(memory, low, low)
        torch.testing.assert_close(same, model.total(memory, low[..., None])[..., 0])  # so tight at a point


@all_models
@torch.no_grad()
def test_closed_integral(name):
    model, events = build(name), batch_of(draw(6, 2, 5))
    memory = model.remember(events)
    elapsed = torch.rand(*events.times.shape, 3, dtype=torch.float64) * 8
    closed = model.integral(memory, elapsed)
    if closed is None:
        assert name not in ("hawkes", "hawkes-shared", "rmtpp", "contiformer-rmtpp", "contiformer-hazard")
        return
    x, w = (torch.as_tensor(part) for part in gauss_legendre(4))
    pieces = 1500
    share = ((torch.arange(pieces)[:, None] + x) / pieces).flatten()
    for m in range(elapsed.shape[-1]):
        upto = elapsed[..., m, None]
        numeric = (model.total(memory, upto * share) * w.repeat(pieces)).sum(-1) * upto[..., 0] / pieces
        torch.testing.assert_close(closed[..., m], numeric, rtol=1e-5, atol=1e-9)


@all_models
@torch.no_grad()
def test_log_rates_and_total(name):
    model, events = build(name), batch_of(draw(7))
    memory = model.remember(events)
    elapsed = torch.rand(*events.times.shape, 4, dtype=torch.float64) * 4
    rates = model.rates(memory, elapsed)
    assert rates.shape == (*elapsed.shape, K)
    assert bool((rates > 0).all())
    torch.testing.assert_close(model.log_rates(memory, elapsed).exp(), rates, rtol=1e-6, atol=0)
    torch.testing.assert_close(model.total(memory, elapsed), rates.sum(-1), rtol=1e-10, atol=0)


@all_models
@torch.no_grad()
@pytest.mark.parametrize("c", [8.0, 3.7e-5])
def test_another_unit_of_time(name, c):
    data = draw(8)
    other = data.map(lambda s: replace(s, times=s.times * c))
    figures = []
    for some in (data, other):
        scaling = EventScaling.fit(some)
        task = EventTask(build(name, scaling), unit=scaling.unit, rule=IntegralRule("closed", 16))
        scored = intervals(task.model, collate_events(list(scaling.apply(some))))
        judged = {"likelihood": log_likelihood(task.model, scored, task.rule), "count": scored.known}
        judged |= dict.fromkeys(("right", "squares", "absolutes"), judged["likelihood"] * 0)
        figures.append(task.metrics({key: x.numpy() for key, x in judged.items()})["log_likelihood"])
    assert figures[1] - figures[0] == pytest.approx(-math.log(c), abs=1e-7)


@all_models
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "times",
    [[], [0.0], [0.0, 0.0, 0.0], [0.0, 1e-9, 2e-9, 1.0], [0.0, 1.0, 1e6, 1e6 + 1e-3, 2e6]],
    ids=["empty", "single", "at once", "1e-9", "1e6"],
)
def test_odd_sequences_are_finite(name, dtype, times):
    # ContiFormer's work grows with the time that passes in spans of the training sequences, and it refuses 1e5 of them
    like_these = name.startswith("contiformer") and times and times[-1] > 1e3
    train = EventScaling.fit(EventSet([EventSequence.of(times)], num_types=K)) if like_these else TRAIN
    model = build(name, replace(TRAIN, span=train.span * train.unit), dtype)
    events = collate_events([EventSequence.of(times, np.arange(len(times)) % K), EventSequence.of([])])
    scored = intervals(model, events)
    likelihood = log_likelihood(model, scored)
    assert likelihood.shape == (2, max(0, len(times) - 1))
    assert bool(likelihood.isfinite().all())
    if len(times) > 1:
        likelihood.sum().backward()
        slopes = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(bool(slope.isfinite().all()) for slope in slopes)
    if times:
        with torch.no_grad():
            said = expect(model, model.remember(events))
        assert bool(said.mean.isfinite().all())
        assert bool((said.kinds.sum(-1) - 1).abs().max() < 1e-5)


def test_contiformer_says_what_is_wrong_with_sequences_that_are_far_too_long():
    model = build("contiformer-hazard")
    with pytest.warns(ResolutionWarning, match="scale the times"):
        memory = model.remember(collate_events([EventSequence.of([0.0, 2e6])]))
    assert all(part.isfinite().all() for part in memory.rows.values())


@torch.no_grad()
@pytest.mark.parametrize(
    ("level", "slope"), [(0.0, 9.0), (60.0, -9.0), (50.0, 1.0), (50.0, 0.0), (-3.0, 0.0), (1.0, -2)]
)
def test_exponential_intensity_ends_somewhere_and_its_integral_knows(level, slope):
    head = ExponentialIntensity(1, TRAIN).double()
    head.slope.fill_(slope)
    rows = {"level": torch.full((1, 1, 1), level), "kind": torch.zeros(1, 1, K).log_softmax(-1)}
    memory = Memory({key: x.double() for key, x in rows.items()})
    for until in (1e-3, 4.0, 10.0):
        share = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000
        numeric = head.total(memory, (until * share)[None, None]).mean() * until
        closed = head.integral(memory, torch.full((1, 1, 1), until, dtype=torch.float64))
        assert closed.item() == pytest.approx(numeric.item(), rel=1e-4)
    at = torch.tensor([[[0.0, 3.0, 30.0]]], dtype=torch.float64)
    torch.testing.assert_close(head.rates(memory, at).sum(-1), head.total(memory, at))
    torch.testing.assert_close(head.log_rates(memory, at).exp(), head.rates(memory, at))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_growing_exponential_intensity_over_a_long_wait_is_finite(dtype):
    model = build("rmtpp", dtype=dtype)
    model.head.slope.fill_(0.2)
    events = collate_events([EventSequence.of([0.0, 1e6, 1e6 + 1])])
    likelihood = log_likelihood(model, intervals(model, events))
    assert bool(likelihood.isfinite().all())
    assert likelihood[0, 0] < -1e20  # as unlikely as it is


@all_models
def test_everything_learns(name):
    model, events = build(name), batch_of(draw(9))
    log_likelihood(model, intervals(model, events)).sum().backward()
    idle = [key for key, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert idle == [key for key in idle if name.startswith("contiformer") and "hats" in key]


@pytest.mark.parametrize("name", BUILD)
@torch.no_grad()
def test_one_type_and_types_never_seen(name):
    for types, seen in ((1, 1), (5, 2)):
        data = EventSet([replace(s, types=s.types % seen) for s in draw(10)], num_types=types)
        scaling = EventScaling.fit(data)
        model = build(name, scaling)
        other = EventSequence.of([0.0, 1.0, 1.5], [0, types - 1, 0])
        likelihood = log_likelihood(model, intervals(model, collate_events([other])))
        assert bool(likelihood.isfinite().all())


def naive_neural_hawkes(model, times, types, at):
    """Intensities at a time after the last of the events, unit by unit and straight from the paper."""
    d = model.d_model
    W, b, U = model.from_input.weight.tolist(), model.from_input.bias.tolist(), model.from_state.weight.tolist()
    embedding, begin = model.input.embedding.weight.tolist(), model.begin.tolist()
    v, log_s = model.pull.weight.tolist(), model.log_scale.tolist()

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    c, rest, decay, out, last = [0.0] * d, [0.0] * d, [0.0] * d, [0.0] * d, times[0]
    for time, x in [(times[0], begin), *((t, embedding[k]) for t, k in zip(times, types, strict=True))]:
        now = [rest[u] + (c[u] - rest[u]) * math.exp(-decay[u] * (time - last)) for u in range(d)]
        h = [out[u] * (2 * sigmoid(2 * now[u]) - 1) for u in range(d)]

        def gate(number, u, x=x, h=h):
            row = number * d + u
            return sum(W[row][m] * x[m] + U[row][m] * h[m] for m in range(d)) + b[row]

        forget, forget_rest, enter, enter_rest, opened = ([sigmoid(gate(g, u)) for u in range(d)] for g in range(5))
        z = [2 * sigmoid(gate(5, u)) - 1 for u in range(d)]
        decay = [math.log1p(math.exp(gate(6, u))) for u in range(d)]
        c = [forget[u] * now[u] + enter[u] * z[u] for u in range(d)]
        rest = [forget_rest[u] * rest[u] + enter_rest[u] * z[u] for u in range(d)]
        out, last = opened, time
    now = [rest[u] + (c[u] - rest[u]) * math.exp(-decay[u] * (at - last)) for u in range(d)]
    h = [out[u] * (2 * sigmoid(2 * now[u]) - 1) for u in range(d)]
    s = [math.exp(x) for x in log_s]
    w = [[s[k] * v[k][u] for u in range(d)] for k in range(len(s))]
    return [s[k] * math.log1p(math.exp(sum(w[k][u] * h[u] for u in range(d)) / s[k])) for k in range(len(s))]


@torch.no_grad()
def test_neural_hawkes_against_a_naive_loop():
    model, events = build("nhp"), batch_of(draw(11, 2, 6))
    for parameter in model.parameters():
        parameter.add_(0.5 * torch.randn_like(parameter))
    memory = model.remember(events)
    rates = model.rates(memory, torch.full((*events.times.shape, 1), 0.7, dtype=torch.float64))
    for row in range(2):
        for i in range(int(events.lengths[row])):
            times, types = events.times[row, : i + 1].tolist(), events.types[row, : i + 1].tolist()
            expected = naive_neural_hawkes(model, times, types, times[-1] + 0.7)
            assert rates[row, i, 0].tolist() == pytest.approx(expected, abs=1e-12)


@torch.no_grad()
def test_relu_cell_is_the_formula_of_the_paper():
    scaling = TRAIN
    torch.manual_seed(0)
    encoder = RMTPPEncoder(scaling, 4, cell="relu").double().eval()
    events = batch_of(draw(12, 1, 6))
    states, cell = encoder(events), encoder.recurrent
    h, last = torch.zeros(4, dtype=torch.float64), events.times[0, 0]
    for i, (t, k) in enumerate(zip(events.times[0], events.types[0], strict=True)):
        x = torch.cat([encoder.input.embedding.weight[k], torch.log1p((t - last) / 0.01)[None]])
        h = (cell.weight_ih_l0 @ x + cell.bias_ih_l0 + cell.weight_hh_l0 @ h + cell.bias_hh_l0).clamp(min=0)
        last = t
        torch.testing.assert_close(states[0, i], h)


@torch.no_grad()
def test_shifted_positions_are_the_formula_of_the_paper():
    encoder = SAHPEncoder(TRAIN, 6, n_heads=2).double()
    times = torch.tensor([[0.0, 0.4, 0.4, 9.0]], dtype=torch.float64)
    positions, shift = encoder.positions(times), encoder.positions.shift
    for i in range(4):
        for m in range(3):
            angle = i / 10000 ** (2 * m / 6) + float(shift[m] * times[0, i])
            assert positions[0, i, m].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert positions[0, i, 3 + m].item() == pytest.approx(math.cos(angle), abs=1e-12)


@all_models
@torch.no_grad()
def test_features_and_dropout(name):
    rng = np.random.default_rng(0)
    data = draw(13).map(lambda s: replace(s, features=rng.normal(size=(len(s), 2))))
    scaling = EventScaling.fit(data)
    model = build(name, scaling)
    events = collate_events(list(scaling.apply(data)))
    rates = every_rate(model, events)
    assert torch.equal(rates, every_rate(model, events))
    if name.startswith("hawkes"):
        return
    other = every_rate(model, replace(events, features=events.features + 1))
    assert not torch.equal(rates, other)
    assert not torch.equal(rates, every_rate(model.train(), events))


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="one layer"):
        NeuralHawkesModel(TRAIN, D, n_layers=2)
    with pytest.raises(ValueError, match="n_layers"):
        RMTPPEncoder(TRAIN, D, n_layers=0)
    with pytest.raises(ValueError, match="cell"):
        RMTPPEncoder(TRAIN, D, cell="tanh")
    with pytest.raises(ValueError, match="shift"):
        SAHPEncoder(TRAIN, D, shift="age")
    with pytest.raises(ValueError, match="n_layers"):
        SAHPEncoder(TRAIN, D, n_layers=0)
    with pytest.raises(ValueError, match="decay"):
        HawkesModel(TRAIN, decay="none")
    with pytest.raises(ValueError, match="d_model"):
        NeuralHawkesModel(TRAIN, 0)
    assert "num_types=3" in repr(HawkesModel(TRAIN))


@torch.no_grad()
def test_excitation_in_pieces_is_the_same(monkeypatch):
    model, events = build("hawkes"), batch_of(draw(14))
    memory = model.remember(events)
    elapsed = torch.rand(*events.times.shape, 4, dtype=torch.float64)
    whole = model.rates(memory, elapsed), model.integral(memory, elapsed)
    monkeypatch.setattr("contiformer.tasks.events.hawkes._AT_ONCE", 1)
    torch.testing.assert_close((model.rates(memory, elapsed), model.integral(memory, elapsed)), whole)

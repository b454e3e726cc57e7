"""DLinear, TimesNet, Autoformer, FEDformer, Informer and Reformer against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from contiformer.backbones.autoformer import AutoCorrelation, Autoformer, Decomposition, auto_correlation
from contiformer.backbones.base import check_capabilities
from contiformer.backbones.dlinear import DLinear
from contiformer.backbones.fedformer import FEDformer, FourierAttention, FourierBlock
from contiformer.backbones.informer import Distilling, FullAttention, Informer, ProbSparseAttention
from contiformer.backbones.reformer import LSHAttention, Reformer
from contiformer.backbones.regular import RegularBackbone, Window, WindowEmbedding
from contiformer.backbones.timesnet import Inception, TimesBlock, TimesNet, main_periods
from contiformer.data import Series, SeriesSet, collate
from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from tests.problems import largest, normal

CHANNELS, WIDTH, HEADS, HISTORY, HORIZON = 2, 8, 2, 6, 4
STEP, START = 0.25, 3.0
MODELS: dict[type[RegularBackbone], dict[str, int]] = {
    DLinear: {}, TimesNet: {"n_kernels": 2}, Autoformer: {}, FEDformer: {"n_heads": HEADS},
    Informer: {"n_heads": HEADS}, Reformer: {"n_heads": HEADS},
}  # fmt: skip
every_model = pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)


def make(kind: type[RegularBackbone], **options) -> RegularBackbone:
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "dropout": 0.0, "history": HISTORY, "horizon": HORIZON}
    return kind(CHANNELS, **{**sizes, **MODELS[kind], **options}).double().eval()


def draw_batch(*lengths: int) -> Batch:
    torch.manual_seed(1)
    times = [START + n + STEP * torch.arange(length).double() for n, length in enumerate(lengths)]
    return double(collate([Series.of(t.numpy(), normal(len(t), CHANNELS).numpy()) for t in times]))


def double(batch: Batch) -> Batch:
    return Batch(batch.times, batch.values.double(), batch.observed, batch.lengths)


# The grid


@every_model
def test_queries_are_rows_and_steps_in_any_order(kind):
    model = make(kind)
    batch = draw_batch(HISTORY, 4)
    rows = model(batch)
    # of both series the steps ahead begin with number 6
    steps = torch.stack([torch.arange(10), torch.arange(-2, 8)])
    queries = START + torch.tensor([[0.0], [1.0]], dtype=torch.float64) + STEP * steps
    states = model(batch, queries[:, 6:])
    mixed = model(batch, queries[:, [9, 2, 6]])
    assert largest(mixed[0] - torch.stack([states[0, 3], rows[0, 2], states[0, 0]])) < 1e-12
    assert largest(mixed[1] - torch.stack([states[1, 3], rows[1, 0], states[1, 0]])) < 1e-12
    assert largest(model(batch, queries[:, 7:8]) - states[:, 1:2]) < 1e-12


@every_model
def test_short_series_is_preceded_by_its_first_row(kind):
    model = make(kind)
    short = draw_batch(3)
    first = short.values[:, :1]
    times = START + STEP * torch.arange(-3, 3).double().unsqueeze(0)
    longer = Batch(
        times,
        torch.cat([first.expand(-1, 3, -1), short.values], dim=1),
        torch.ones(1, HISTORY, CHANNELS, dtype=torch.bool),
        torch.tensor([HISTORY]),
    )
    queries = times[:, -1:] + STEP * torch.arange(1, 5)
    assert largest(model(short, queries) - model(longer, queries)) < 1e-12
    assert largest(model(short) - model(longer)[:, 3:]) < 1e-12


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (START + 5.5 * STEP, "not a whole number of steps"),
        (START + 6.002 * STEP, "not a whole number of steps"),
        (float("nan"), "not a whole number of steps"),
        (START - STEP, "before the series"),
        (START + 10 * STEP, "beyond the backbone's horizon=4"),
    ],
)
def test_query_off_the_grid_is_refused_by_name(query, words):
    batch = draw_batch(HISTORY)
    asked = torch.tensor([[START + 6 * STEP, query]], dtype=torch.float64)
    with pytest.raises(ValueError, match=words) as error:
        make(DLinear)(batch, asked)
    assert f"query_times has {query:g} for series 0" in str(error.value)
    make(DLinear)(batch, torch.tensor([[START + 6.0009 * STEP, START + 9 * STEP]], dtype=torch.float64))


def test_data_that_do_not_fit_are_refused():
    model = make(DLinear)
    with pytest.raises(ValueError, match="history=6: make it with history=7"):
        model(draw_batch(7))
    uneven = collate([Series.of([0, 1, 2.01, 3], [[1.0, 2.0]] * 4)])
    with pytest.raises(ValueError, match=r"irregular times.*'contiformer'"):
        model(uneven)
    with pytest.raises(ValueError, match="irregular times"):
        model(collate([Series.of([0, 0], [[1.0, 2.0]] * 2)]))
    with pytest.raises(ValueError, match=r"missing values.*'contiformer'"):
        model(collate([Series.of([0, 1], [[1.0, 2.0], [math.nan, 2.0]])]))
    with pytest.raises(DataError, match="irregular times") as error:
        check_capabilities("dlinear", model.capabilities, SeriesSet([Series.of([0, 1, 2.01], [[1.0]] * 3)]))
    assert "'contiformer'" in str(error.value)


def test_without_two_rows_all_later_times_are_the_first_step():
    batch = draw_batch(1, 0)
    window = Window.of(batch, HISTORY, torch.float64)
    assert window.places(START + torch.tensor([[0.0, 0.3, 7.0], [0.0, 0.3, 7.0]]), 2).tolist() == [[5, 6, 6], [6, 6, 6]]


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (DLinear, {"history": 1}, "history must be 2 or more, got 1"),
        (DLinear, {"horizon": 0}, "horizon must be 1 or more, got 0"),
        (DLinear, {"d_model": 1}, "d_model must be at least input_size=2"),
        (DLinear, {"kernel": 0}, "kernels of moving averages must be 1 row or more"),
        (Autoformer, {"factor": 0.0}, "factor must be positive, got 0.0"),
        (FEDformer, {"modes": 0}, "modes must be positive, got 0"),
        (FEDformer, {"activation": "relu"}, "activation must be 'softmax' or 'tanh', got 'relu'"),
        (FEDformer, {"n_heads": 3}, "n_heads must divide d_model=8, got 3"),
        (Informer, {"factor": -1.0}, "factor must be positive, got -1.0"),
        (Reformer, {"rounds": 0}, "rounds must be positive, got 0"),
        (TimesNet, {"periods": 0}, "periods must be positive, got 0"),
    ],
)
def test_option_that_makes_no_sense_is_refused(kind, options, words):
    with pytest.raises(ValueError, match=words):
        make(kind, **options)


def test_embedding_is_a_circular_convolution_and_sines_of_places():
    embedding = WindowEmbedding(CHANNELS, WIDTH, 0.0, 5).double()
    values = normal(1, 5, CHANNELS)
    k = torch.arange(WIDTH // 2)
    for row in range(5):
        angles = row / 10000 ** (2 * k / WIDTH)
        place = torch.stack([angles.sin(), angles.cos()], dim=1).flatten()
        near = [values[0, (row + j) % 5] for j in (-1, 0, 1)]
        expected = sum(embedding.values.weight[:, :, j] @ near[j] for j in range(3)) + place
        assert largest(embedding(values)[0, row] - expected) < 1e-6


# Series decomposition, DLinear, Autoformer


def test_decomposition_repeats_the_ends():
    x = torch.tensor([1.0, 2.0, 6.0, 0.0]).reshape(1, 4, 1)
    seasonal, trend = Decomposition((5,))(x)
    by_hand = torch.tensor([11 / 5, 10 / 5, 9 / 5, 8 / 5]).reshape(1, 4, 1)
    assert largest(trend - by_hand) < 1e-6
    assert largest(seasonal - (x - by_hand)) < 1e-6
    # an even number of rows begins one row earlier
    assert Decomposition((2,))(x)[1].flatten().tolist() == [1.0, 1.5, 4.0, 3.0]


def test_mixture_of_moving_averages():
    mixed = Decomposition((1, 3))
    x = torch.tensor([0.0, 3.0, 6.0]).reshape(1, 3, 1)
    with torch.no_grad():
        mixed.mixture.weight.copy_(torch.tensor([[0.0], [0.5]]))
        mixed.mixture.bias.zero_()
    share = torch.sigmoid(0.5 * x.flatten())
    expected = (1 - share) * torch.tensor([0.0, 3.0, 6.0]) + share * torch.tensor([1.0, 3.0, 5.0])
    assert largest(mixed(x)[1].flatten() - expected) < 1e-6


@pytest.mark.parametrize("individual", [False, True])
def test_dlinear_is_two_linear_maps_and_nothing_else(individual):
    model = make(DLinear, kernel=3, individual=individual)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    batch = draw_batch(HISTORY)
    states = model(batch, batch.times[:, -1:] + STEP * torch.arange(1, 5))
    for channel in range(CHANNELS):
        x = batch.values[0, :, channel]
        wide = torch.cat([x[:1], x, x[-1:]])
        trend = torch.stack([wide[n : n + 3].mean() for n in range(HISTORY)])
        kind = channel if individual else 0
        seasonal_map, trend_map = model.future.weight[:, kind]
        seasonal_bias, trend_bias = model.future.bias[:, kind]
        expected = seasonal_map @ (x - trend) + seasonal_bias + trend_map @ trend + trend_bias
        assert largest(states[0, :, channel] - expected) < 1e-12
    assert states.shape == (1, 4, WIDTH)
    assert not states[..., CHANNELS:].any()


def test_dlinear_begins_with_the_mean_of_the_window():
    model = make(DLinear)
    nn.init.zeros_(model.future.bias)
    batch = draw_batch(HISTORY)
    states = model(batch, batch.times[:, -1:] + STEP)
    assert largest(states[0, 0, :CHANNELS] - batch.values[0].mean(0)) < 1e-7


@pytest.mark.parametrize("length", [5, 6])
def test_auto_correlation_by_fft_is_its_definition(length):
    queries, keys = normal(2, length, 3), normal(2, length, 3)
    naive = torch.zeros(2, length, 3, dtype=torch.float64)
    for delay in range(length):
        for t in range(length):
            naive[:, delay] += queries[:, t] * keys[:, (t - delay) % length]
    assert largest(auto_correlation(queries, keys) - naive) < 1e-12


@pytest.mark.parametrize("others", [4, 7, 12])
def test_attention_by_delays_is_its_definition(others):
    torch.manual_seed(0)
    attention = AutoCorrelation(WIDTH, factor=2.0).double().eval()
    length = 7
    x, other = normal(2, length, WIDTH), normal(2, others, WIDTH)
    fitted = torch.zeros(2, length, 2 * WIDTH, dtype=torch.float64)
    shown = min(length, others)
    fitted[:, :shown] = attention.key_value(other)[:, :shown]
    keys, values = fitted.chunk(2, dim=-1)
    queries = attention.query(x)
    for series in range(2):
        scores = []
        for delay in range(length):
            pairs = [queries[series, t] @ keys[series, (t - delay) % length] for t in range(length)]
            scores.append(sum(pairs) / WIDTH)
        best = sorted(range(length), key=lambda delay: -scores[delay])[: int(2 * math.log(length))]
        weights = torch.stack([scores[delay] for delay in best]).softmax(0)
        total = sum(w * values[series].roll(-delay, 0) for w, delay in zip(weights, best, strict=True))
        assert largest(attention(x, other)[series] - attention.out(total)) < 1e-12


def test_delays_are_those_of_the_batch_in_training_only():
    attention = AutoCorrelation(WIDTH, factor=0.6).double()
    x = normal(3, 8, WIDTH)
    alone = attention.eval()(x[:1], x[:1])
    assert largest(attention.eval()(x, x)[:1] - alone) < 1e-12
    attention.train()
    correlation = auto_correlation(attention.query(x), attention.key_value(x)[..., :WIDTH]).mean(-1)
    delay = int(correlation.mean(0).argmax())
    # one delay has all the weight
    expected = attention.out(attention.key_value(x)[..., WIDTH:].roll(-delay, 1))
    assert largest(attention(x, x) - expected) < 1e-12


@pytest.mark.parametrize("kind", [Autoformer, FEDformer])
def test_forecast_is_the_trend_where_the_season_is_silent(kind):
    model = make(kind)
    inner = model.model
    for silent in (inner.project.weight, inner.project.bias, *(conv.weight for conv in inner.trends)):
        nn.init.zeros_(silent)
    batch = draw_batch(HISTORY)
    states = model(batch, batch.times[:, -1:] + STEP * torch.arange(1, 5))
    # the trend is continued by the mean of the window
    assert largest(states[0, :, :CHANNELS] - batch.values[0].mean(0)) < 1e-12
    nn.init.ones_(inner.project.bias)
    moved = model(batch, batch.times[:, -1:] + STEP * torch.arange(1, 5)) - states
    assert largest(moved[..., :CHANNELS] - 1) < 1e-12
    assert largest(moved[..., CHANNELS:]) < 1e-12


# FEDformer


def fourier(x: Tensor, mode: int) -> Tensor:
    """A coefficient of the unitary transform, by its definition."""
    length = len(x)
    angles = -2 * math.pi * mode * torch.arange(length, dtype=torch.float64) / length
    return (torch.polar(torch.ones_like(angles), angles).unsqueeze(1) * x).sum(0) / math.sqrt(length)


def back(coefficients: dict[int, Tensor], length: int) -> Tensor:
    """The real series of some coefficients, by its definition; each but that of 0 stands for its mirror, too."""
    t = torch.arange(length, dtype=torch.float64)
    total = torch.zeros(length, WIDTH, dtype=torch.float64)
    for mode, coefficient in coefficients.items():
        wave = torch.polar(torch.ones_like(t), 2 * math.pi * mode * t / length)
        total += (1 if mode == 0 else 2) * (wave.unsqueeze(1) * coefficient).real / math.sqrt(length)
    return total


@pytest.mark.parametrize("length", [8, 9])
def test_fourier_block_is_an_explicit_transform_of_the_kept_modes(length):
    modes = torch.tensor([0, 2, 3])
    block = FourierBlock(WIDTH, HEADS, modes).double()
    nn.init.normal_(block.mix)
    x = normal(1, length, WIDTH)
    queries = block.query(x)[0]
    mixed = {}
    for number, mode in enumerate(modes.tolist()):
        heads = fourier(queries, mode).chunk(HEADS)
        mix = torch.view_as_complex(block.mix)[:, number]
        mixed[mode] = torch.cat([heads[head] @ mix[head] for head in range(HEADS)])
    assert largest(block(x)[0] - block.out(back(mixed, length))) < 1e-12


@pytest.mark.parametrize("activation", ["softmax", "tanh"])
def test_fourier_attention_is_attention_of_explicit_coefficients(activation):
    modes, others = torch.tensor([1, 3]), torch.tensor([0, 1, 2])
    attention = FourierAttention(WIDTH, HEADS, modes, others, activation).double()
    x, other = normal(1, 8, WIDTH), normal(1, 6, WIDTH)
    queries, (keys, values) = attention.query(x)[0], attention.key_value(other)[0].chunk(2, dim=-1)
    attended = {}
    for mode in modes.tolist():
        parts = []
        for head in range(HEADS):
            query = fourier(queries, mode).chunk(HEADS)[head]
            products = [(query * fourier(keys, other).chunk(HEADS)[head]).sum() / 2 for other in others.tolist()]
            scores = torch.stack(products)
            weights = scores.tanh() if activation == "tanh" else scores.abs().softmax(0) + 0j
            parts.append(
                sum(w * fourier(values, n).chunk(HEADS)[head] for w, n in zip(weights, others.tolist(), strict=True))
            )
        attended[mode] = torch.cat(parts)
    assert largest(attention(x, other)[0] - attention.out(back(attended, 8))) < 1e-12


def test_modes_are_drawn_once_and_saved_with_the_model():
    model, other = make(FEDformer, history=40, modes=4), FEDformer(CHANNELS, WIDTH, n_heads=HEADS, history=40, modes=4)
    first = model.state_dict()["model.encoder.0.attentions.0.modes"]
    assert len(first) == 4
    assert first.tolist() == sorted(set(first.tolist()))
    assert first.max() < 20
    assert torch.equal(first, model.state_dict()["model.encoder.1.attentions.0.modes"])
    assert not torch.equal(first, other.state_dict()["model.encoder.0.attentions.0.modes"])


# TimesNet


def test_periods_of_sines_are_found_for_each_series():
    t = torch.arange(48.0)
    both = torch.sin(2 * math.pi * t / 12) + 0.3 * torch.cos(2 * math.pi * t / 4) + 9
    waves = torch.stack([both, torch.sin(2 * math.pi * t / 8)]).unsqueeze(-1)
    periods, amplitudes = main_periods(waves, 2)
    assert periods[0].tolist() == [12, 4]
    assert periods[1, 0] == 8
    uneven = torch.sin(2 * math.pi * 2 * torch.arange(11.0) / 11).reshape(1, 11, 1)
    assert main_periods(uneven, 1)[0].tolist() == [[5]]
    # half the length for each unit of amplitude
    assert largest(amplitudes[0] - torch.tensor([24.0, 7.2])) < 1e-3


def test_mean_of_convolutions_is_one_convolution():
    inception = Inception(3, 4, 3).double()
    nn.init.normal_(inception.bias)
    x = normal(2, 3, 5, 6)
    each = [nn.functional.conv2d(x, kernel, padding=n) for n, kernel in enumerate(inception.kernels)]
    expected = torch.stack(each).mean(0) + inception.bias[:, None, None]
    assert largest(inception(x) - expected) < 1e-12


def test_block_folds_each_series_at_its_own_periods():
    torch.manual_seed(0)
    block = TimesBlock(WIDTH, WIDTH, 2, 2).double()
    x = normal(3, 11, WIDTH)
    periods, amplitudes = main_periods(x, 2)
    assert len(periods.unique()) > 2
    for series in range(3):
        expected = x[series].clone()
        for rank, share in enumerate(amplitudes[series].softmax(0)):
            period = int(periods[series, rank])
            rows = math.ceil(11 / period)
            picture = torch.zeros(1, WIDTH, rows, period, dtype=torch.float64)
            for t in range(11):
                picture[0, :, t // period, t % period] = x[series, t]
            seen = block.narrow(nn.functional.gelu(block.widen(picture)))
            expected += share * torch.stack([seen[0, :, t // period, t % period] for t in range(11)])
        assert largest(block(x)[series] - expected) < 1e-12


# Informer


def test_probsparse_attention_is_full_attention_where_all_queries_are_chosen():
    sparse, full = ProbSparseAttention(WIDTH, HEADS, factor=5.0).double(), FullAttention(WIDTH, HEADS).double()
    full.load_state_dict(sparse.state_dict())
    x, other = normal(2, 9, WIDTH), normal(2, 7, WIDTH)
    assert largest(sparse(x, other) - full(x, other)) < 1e-12
    reference = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    reference.in_proj_weight.data = torch.cat([full.query.weight, full.key_value.weight]).data
    reference.in_proj_bias.data = torch.cat([full.query.bias, full.key_value.bias]).data
    reference.out_proj.load_state_dict(full.out.state_dict())
    assert largest(full(x, other) - reference(x, other, other)[0]) < 1e-12
    causal = ProbSparseAttention(WIDTH, HEADS, factor=5.0, causal=True).double()
    causal.load_state_dict(sparse.state_dict())
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert largest(causal(x, x) - reference(x, x, x, attn_mask=hidden)[0]) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_queries_that_matter_little_get_a_mean_or_sum(causal):
    attention = ProbSparseAttention(WIDTH, HEADS, factor=1.0, causal=causal).double().eval()
    queries, keys, values = (normal(2, HEADS, 12, 4) for _ in range(3))
    out = attention.attend(queries, keys, values)
    generator = torch.Generator().manual_seed(0)
    sample = torch.randint(12, (12, 3), generator=generator)
    for series in range(2):
        for head in range(HEADS):
            products = queries[series, head] @ keys[series, head].T
            sampled = [products[n, sample[n]] for n in range(12)]
            matters = torch.stack([one.max() - one.sum() / 12 for one in sampled])
            chosen = set(matters.topk(3).indices.tolist())
            for n in range(12):
                seen = n + 1 if causal else 12
                weights = (products[n, :seen] / 2).softmax(0)
                lazy = values[series, head, :seen].sum(0) if causal else values[series, head].mean(0)
                expected = weights @ values[series, head, :seen] if n in chosen else lazy
                assert largest(out[series, head, n] - expected) < 1e-12


def test_distilling_halves_the_rows():
    distilling = Distilling(WIDTH).double().eval()
    with torch.no_grad():
        distilling.conv.weight.zero_()
        distilling.conv.weight[:, :, 1] = torch.eye(WIDTH)
        distilling.conv.bias.zero_()
    x = normal(1, 7, WIDTH)
    scaled = nn.functional.elu(x / math.sqrt(1 + 1e-5))
    expected = [scaled[:, max(0, 2 * n - 1) : 2 * n + 2].amax(1) for n in range(4)]
    assert largest(distilling(x) - torch.stack(expected, dim=1)) < 1e-12


@pytest.mark.parametrize("kind", [Informer, Reformer])
def test_random_choices_are_fixed_in_use_and_free_in_training(kind):
    sizes = {"history": 40, "horizon": 8}
    model = make(kind, **sizes, factor=1.0) if kind is Informer else make(kind, **sizes)
    batch = draw_batch(40)
    queries = batch.times[:, -1:] + STEP * torch.arange(1, 9)
    assert torch.equal(model(batch, queries), model(batch, queries))
    before = torch.random.get_rng_state()
    model(batch, queries)
    assert torch.equal(before, torch.random.get_rng_state())
    model.train()
    assert not torch.equal(model(batch, queries), model(batch, queries))


# Reformer


def shared_attention(queries: Tensor, values: Tensor, near: Tensor) -> Tensor:
    """Attention with one vector for query and key among the rows that are near, and to itself only if there is none."""
    keys = queries / queries.norm(dim=-1, keepdim=True)
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    itself = torch.eye(len(near), dtype=torch.bool) & (near.sum(-1, keepdim=True) > 1)
    return scores.masked_fill(~near | itself, -torch.inf).softmax(-1) @ values


@pytest.mark.parametrize(("rows", "chunk"), [(8, 4), (8, 64), (7, 4), (9, 100)])
def test_lsh_attention_is_full_attention_where_two_chunks_hold_all_rows(rows, chunk):
    attention = LSHAttention(WIDTH, HEADS, chunk, rounds=3).double()
    queries, values = normal(2, HEADS, rows, 4), normal(2, HEADS, rows, 4)
    out = attention.attend(queries, values)
    everything = torch.ones(rows, rows, dtype=torch.bool)
    for series in range(2):
        for head in range(HEADS):
            expected = shared_attention(queries[series, head], values[series, head], everything)
            assert largest(out[series, head] - expected) < 1e-12


@pytest.mark.parametrize("rows", [24, 21])
def test_lsh_attention_is_attention_among_rows_that_are_near_in_any_round(rows):
    attention = LSHAttention(WIDTH, 1, chunk=3, rounds=2).double().eval()
    queries, values = normal(1, 1, rows, WIDTH), normal(1, 1, rows, WIDTH)
    rotations = torch.randn(2, WIDTH, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near = torch.zeros(rows, rows, dtype=torch.bool)
    for rotation in rotations:
        turned = queries[0, 0] @ rotation
        bucket = torch.cat([turned, -turned], dim=1).argmax(1).tolist()
        order = sorted(range(rows), key=lambda n: (bucket[n], n))
        chunk = {n: place // 3 for place, n in enumerate(order)}
        for i in range(rows):
            for j in range(rows):
                near[i, j] |= chunk[j] in (chunk[i], (chunk[i] - 1) % 8)
    assert not near.all()
    out = attention.attend(queries, values)[0, 0]
    assert largest(out - shared_attention(queries[0, 0], values[0, 0], near)) < 1e-12


def test_row_that_is_alone_attends_to_itself():
    attention = LSHAttention(WIDTH, 1, chunk=1, rounds=1).double()
    queries, values = normal(1, 1, 1, WIDTH), normal(1, 1, 1, WIDTH)
    assert largest(attention.attend(queries, values) - values) < 1e-12

"""Transformer, TST, mTAN and NSTKA against their formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from contiformer.backbones.encoder_layer import EncoderLayer, TokenEmbedding, visible
from contiformer.backbones.mtan import MTAN, MultiTimeAttention
from contiformer.backbones.nstka import NSTKA, SpectralMixtureKernel
from contiformer.backbones.recurrence import Rows
from contiformer.backbones.transformer import Transformer
from contiformer.backbones.tst import TST, BatchNormLayer, _places
from contiformer.data.batch import Batch
from tests.problems import largest, normal, sorted_times

CHANNELS, WIDTH, HEADS = 2, 8, 2


def draw_batch(lengths: tuple[int, ...] = (6, 4)) -> Batch:
    size, points = len(lengths), max(lengths)
    observed = torch.rand(size, points, CHANNELS) < 0.7
    observed[..., 0] |= ~observed.any(-1)
    observed &= (torch.arange(points) < torch.tensor(lengths)[:, None]).unsqueeze(-1)
    values = torch.where(observed, normal(size, points, CHANNELS), 0.0)
    return Batch(sorted_times(size, points), values, observed, torch.tensor(lengths))


def original_layer(layer: EncoderLayer) -> nn.TransformerEncoderLayer:
    """PyTorch's own layer with the same weights."""
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, layer.feed_forward[0].out_features, dropout=0.0, batch_first=True, dtype=torch.float64
    )
    attention = theirs.self_attn
    attention.in_proj_weight.data = torch.cat([layer.query.weight, layer.key_value.weight]).data
    attention.in_proj_bias.data = torch.cat([layer.query.bias, layer.key_value.bias]).data
    attention.out_proj.load_state_dict(layer.out.state_dict())
    theirs.linear1.load_state_dict(layer.feed_forward[0].state_dict())
    theirs.linear2.load_state_dict(layer.feed_forward[3].state_dict())
    theirs.norm1.load_state_dict(layer.attention_norm.state_dict())
    theirs.norm2.load_state_dict(layer.feed_forward_norm.state_dict())
    return theirs.train()


@pytest.mark.parametrize("causal", [False, True])
def test_transformer_is_pytorchs_encoder_on_a_masked_sequence(causal):
    model = Transformer(CHANNELS, WIDTH, n_layers=2, n_heads=HEADS, dropout=0.0, causal=causal).double()
    batch = draw_batch((6, 6))
    queries = batch.times[:, :4] + 0.05
    shown = torch.cat([batch.values, batch.observed.double()], dim=-1)
    tokens = torch.cat([model.embedding.project(shown), model.embedding.mask_token.expand(2, 4, -1)], dim=1)
    times = torch.cat([batch.times, queries], dim=1)
    x = tokens + model.encoding(times)
    hidden = torch.ones(2, 10, 10, dtype=torch.bool)
    for series in range(2):
        for token in range(10):
            for row in range(6):
                past = row <= token if token < 6 else bool(times[series, row] <= times[series, token])
                hidden[series, token, row] = causal and not past
    # PyTorch cannot attend to nothing; such queries have a test of their own
    assert (~hidden).any(-1).all()
    for layer in model.layers:
        x = original_layer(layer)(x, src_mask=hidden.repeat_interleave(HEADS, dim=0))
    assert largest(model(batch) - x[:, :6]) < 1e-12
    assert largest(model(batch, queries) - x[:, 6:]) < 1e-12


def test_token_that_sees_nothing_gets_nothing_from_attention():
    model = Transformer(CHANNELS, WIDTH, n_layers=1, n_heads=HEADS, dropout=0.0, causal=True).double()
    batch = draw_batch()
    early = batch.times[:, :1] - 0.2
    layer = model.layers[0]
    x = model.embedding.mask_token + model.encoding(early)
    y = layer.attention_norm(x + layer.out.bias)
    expected = layer.feed_forward_norm(y + layer.feed_forward(y))
    assert largest(model(batch, early) - expected) < 1e-12


def test_visible_rows_by_hand():
    observed = torch.tensor([[[True], [True], [False], [True]]])
    times = torch.tensor([[0.0, 0.5, 0.6, 0.5]], dtype=torch.float64)
    batch = Batch(times, torch.zeros(1, 4, 1), observed, torch.tensor([4]))
    asked = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    assert visible(batch, asked, causal=True)[0].int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [0, 0, 0, 0],
    ]
    assert visible(batch, asked, causal=False)[0].int().tolist() == [[1, 1, 0, 1]] * 6


def test_multi_time_attention_by_hand():
    """One feature ω t with ω = 1: κ(1, 0) = 1 and κ(1, ln 3) = 3, so (4 + 3 * 8) / 4 = 7."""
    attention = MultiTimeAttention(channels=2, size=1, time_features=1)
    attention.phase.data.zero_()
    attention.weights.data.fill_(1.0)
    times = torch.tensor([[0.0, math.log(3), 0.7]])
    values = torch.tensor([[[4.0, 0.0], [8.0, 5.0], [99.0, 0.0]]])
    observed = torch.tensor([[[True, False], [True, True], [False, False]]])
    smoothed, known = attention.smooth(torch.tensor([[1.0]]), times, values, observed)
    assert smoothed.flatten().tolist() == pytest.approx([7.0, 5.0])
    assert known.all()
    sees = torch.tensor([[[True, False, True]]])
    smoothed, known = attention.smooth(torch.tensor([[1.0]]), times, values, observed, sees)
    assert smoothed.flatten().tolist() == [4.0, 0.0]
    assert known.flatten().tolist() == [True, False]


def naive_attention(module: MultiTimeAttention, t: Tensor, times: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """The paper's sums, one head and one channel at a time, for one query."""

    def embedded(head: int, at: Tensor, projection: int) -> Tensor:
        features = module.speed[head] * at + module.phase[head]
        return torch.cat([features[:1], features[1:].sin()]) @ module.weights[projection, head]

    heads, size = module.speed.shape
    parts = []
    for head in range(heads):
        for channel in range(values.shape[1]):
            rows = [row for row in range(len(times)) if seen[row, channel]]
            scores = [embedded(head, t, 0) @ embedded(head, times[row], 1) / math.sqrt(size) for row in rows]
            weights = torch.stack(scores).softmax(0) if rows else torch.zeros(0).double()
            parts.append(sum((w * values[row, channel] for w, row in zip(weights, rows, strict=True)), t * 0))
    return module.out(torch.stack([*parts, *seen.any(0).double()]))


def test_multi_time_attention_is_the_papers_formula():
    module = MultiTimeAttention(CHANNELS, 3, heads=2, time_features=5).double()
    batch = draw_batch()
    queries = 1.6 * torch.rand(2, 4).double() - 0.3
    sees = torch.rand(2, 4, 6) < 0.6
    answers = module(queries, batch.times, batch.values, batch.observed, sees)
    for series in range(2):
        for query in range(4):
            seen = batch.observed[series] & sees[series, query].unsqueeze(-1)
            expected = naive_attention(module, queries[series, query], batch.times[series], batch.values[series], seen)
            assert largest(answers[series, query] - expected) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channel_with_tiny_scores_does_not_vanish(dtype):
    """exp(-2000) is zero in both types, but the only observation of a channel has weight one."""
    attention = MultiTimeAttention(channels=2, size=1, time_features=1).to(dtype)
    attention.phase.data.zero_()
    attention.weights.data.fill_(1.0)
    times = torch.tensor([[0.0, 2000.0]], dtype=dtype)
    values = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]], dtype=dtype)
    smoothed, known = attention.smooth(times[:, :1] + 1, times, values, values != 0)
    assert smoothed.flatten().tolist() == pytest.approx([3.0, 5.0])
    assert known.all()


def make_mtan(**options) -> MTAN:
    return MTAN(CHANNELS, WIDTH, time_features=6, references=5, dropout=0.0, **options).double().eval()


def test_mtan_is_attention_gru_attention():
    model = make_mtan()
    batch = draw_batch()
    queries = torch.rand(2, 3).double()
    assert model.decoder is not None
    for series, length in enumerate((6, 4)):
        times = batch.times[series : series + 1, :length]
        reference = torch.linspace(float(times[0, 0]), float(times[0, -1]), 5, dtype=torch.float64).unsqueeze(0)
        values, observed = (x[series : series + 1, :length] for x in (batch.values, batch.observed))
        hidden, _ = model.recurrent[0](model.attention(reference, times, values, observed))
        everything = torch.ones_like(hidden, dtype=torch.bool)
        expected = model.out(model.decoder(queries[series : series + 1], reference, hidden, everything))
        assert largest(model(batch, queries)[series] - expected) < 1e-12


@pytest.mark.parametrize("n_layers", [1, 2])
def test_causal_mtan_is_a_recurrence_over_rows(n_layers):
    model = make_mtan(causal=True, n_layers=n_layers)
    batch = draw_batch()
    rows = Rows.of(batch, torch.float64)
    states = model(batch)
    for series, length in enumerate((6, 4)):
        one = [torch.zeros(1, 1, WIDTH).double() for _ in range(n_layers)]
        for row in range(length):
            seen = rows.observed[series] & (torch.arange(6) <= row).unsqueeze(-1)
            x = naive_attention(
                model.attention, rows.times[series, row], rows.times[series], rows.values[series], seen
            ).view(1, 1, -1)
            for layer, gru in enumerate(model.recurrent):
                x, one[layer] = gru(x, one[layer])
            assert largest(states[series, row] - model.out(x)) < 1e-12


@pytest.mark.parametrize("n_layers", [1, 2])
def test_causal_mtan_at_the_time_of_a_row_is_the_state_after_it(n_layers):
    model = make_mtan(causal=True, n_layers=n_layers)
    batch = draw_batch((6, 6))
    states = model(batch)
    assert largest(model(batch, batch.times) - states) < 1e-12
    # and moves on with time until the next row
    assert largest(model(batch, batch.times + 1e-8) - states) < 1e-5
    assert largest(model(batch, batch.times[:, -1:] + 0.3) - states[:, -1:]) > 1e-3


def stationary(kernel: SpectralMixtureKernel, weight: Tensor, length: Tensor, frequency: Tensor) -> None:
    """The same functions at all times."""
    kernel.out.data.zero_()
    kernel.shift.data = torch.stack([weight, length - 1e-3, frequency]).expm1().log()


def test_kernel_with_constant_functions_is_the_spectral_mixture():
    kernel = SpectralMixtureKernel(2).double()
    weight, length, frequency = torch.tensor([[1.0, 2.0], [0.5, 0.1], [0.25, 3.0]]).double()
    stationary(kernel, weight, length, frequency)
    t, s = sorted_times(1, 5), sorted_times(1, 7)
    gap = (t[0, :, None] - s[0, None, :]).unsqueeze(-1)
    expected = weight**2 * torch.exp(-(gap**2) / (2 * length**2)) * torch.cos(2 * math.pi * frequency * gap)
    assert largest(kernel(t, s)[0] - expected.sum(-1)) < 1e-12


def test_kernel_is_the_formula_with_functions_of_time():
    kernel = SpectralMixtureKernel(3).double()
    kernel.out.data.mul_(3)
    t = torch.tensor([[0.2, 0.9]]).double()
    weight, length, frequency = (x[0].detach() for x in kernel.functions(t))
    assert largest(length[0] - length[1]) > 1e-3
    total = 0.0
    for i in range(3):
        squares = length[0, i] ** 2 + length[1, i] ** 2
        gibbs = (2 * length[0, i] * length[1, i] / squares) ** 0.5 * torch.exp(-(0.7**2) / squares)
        wave = torch.cos(2 * math.pi * (frequency[0, i] * 0.2 - frequency[1, i] * 0.9))
        total += float(weight[0, i] * weight[1, i] * gibbs * wave)
    assert kernel(t, t)[0, 0, 1].item() == pytest.approx(total)
    assert kernel(t, t)[0].diagonal().tolist() == pytest.approx(weight.square().sum(-1).tolist())


def test_kernel_is_symmetric_and_positive():
    kernel = SpectralMixtureKernel().double()
    kernel.out.data.mul_(4)
    t = 3 * torch.rand(1, 40).double() - 1
    matrix = kernel(t, t)[0].detach()
    assert largest(matrix - matrix.T) < 1e-12
    assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-9


def test_nstka_adds_the_kernel_to_the_scores():
    model = NSTKA(CHANNELS, WIDTH, n_layers=1, n_heads=HEADS, dropout=0.0).double()
    batch = draw_batch((5, 5))
    layer = model.layers[0]
    x = model.embedding(batch, None).x
    parts = (layer.query(x), *layer.key_value(x).chunk(2, dim=-1))
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
    scores = q @ k.mT / math.sqrt(WIDTH / HEADS) + layer.kernel(batch.times, batch.times).unsqueeze(1)
    y = layer.attention_norm(x + layer.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
    assert largest(model(batch) - layer.feed_forward_norm(y + layer.feed_forward(y))) < 1e-12


def test_nstka_knows_time_by_the_kernel_only():
    model = NSTKA(CHANNELS, WIDTH, n_heads=HEADS, dropout=0.0).double()
    batch = draw_batch((5, 5))
    squeezed = replace(batch, times=batch.times**2)
    assert largest(model(batch) - model(squeezed)) > 1e-6
    for layer in model.layers:
        # its weights are zero now
        stationary(layer.kernel, *torch.tensor([[1e-9] * 4, [1.0] * 4, [1.0] * 4]).double())
    assert largest(model(batch) - model(squeezed)) < 1e-12


def test_batch_normalisation_leaves_padding_out_of_the_statistics():
    torch.manual_seed(0)
    layer = BatchNormLayer(WIDTH, HEADS, 16, dropout=0.0).double().train()
    x, valid = normal(3, 5, WIDTH), torch.rand(3, 5) < 0.6
    x[~valid] *= 1e3
    out = layer.normalise(layer.attention_norm, x, valid)
    rows = x[valid]
    expected = (rows - rows.mean(0)) / (rows.var(0, unbiased=False) + 1e-5).sqrt()
    assert largest(out[valid] - expected) < 1e-12
    assert largest(layer.attention_norm.running_mean - 0.1 * rows.mean(0)) < 1e-12
    layer.eval()
    scaled = (x - 0.1 * rows.mean(0)) / (0.9 + 0.1 * rows.var(0) + 1e-5).sqrt()
    assert largest(layer.normalise(layer.attention_norm, x, valid) - scaled) < 1e-9


def test_tst_trains_on_a_single_observation():
    model = TST(CHANNELS, WIDTH, n_heads=HEADS).train()
    batch = draw_batch((1,))
    states = model(replace(batch, values=batch.values.float()))
    states.sum().backward()
    assert states.isfinite().all()


def test_tst_is_the_original_where_all_is_observed():
    """PyTorch's attention with batch normalisation after it, on input that positions were added to."""
    model = TST(CHANNELS, WIDTH, n_layers=2, n_heads=HEADS, d_ff=16, dropout=0.0).double().train()
    batch = draw_batch((6, 6))
    shown = torch.cat([batch.values, batch.observed.double()], dim=-1)
    x = math.sqrt(WIDTH) * model.embedding.project(shown) + model.positions[:6] + model.encoding(batch.times)
    for layer in model.layers:
        attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
        attention.in_proj_weight.data = torch.cat([layer.query.weight, layer.key_value.weight]).data
        attention.in_proj_bias.data = torch.cat([layer.query.bias, layer.key_value.bias]).data
        attention.out_proj.load_state_dict(layer.out.state_dict())
        first, second = nn.BatchNorm1d(WIDTH).double(), nn.BatchNorm1d(WIDTH).double()
        x = first((x + attention(x, x, x)[0]).mT).mT
        x = second((x + layer.feed_forward(x)).mT).mT
    assert largest(model(batch) - nn.functional.gelu(x)) < 1e-10


def test_tst_counts_positions_by_observations():
    batch = draw_batch((6,))
    batch = replace(batch, observed=batch.observed & (torch.arange(6) != 2).view(1, 6, 1))
    queries = batch.times[:, [3, 0]] + torch.tensor([[1e-9, -0.1]])
    tokens = TokenEmbedding(CHANNELS, WIDTH).double()(batch, queries)
    assert _places(tokens).tolist() == [[0, 1, 1, 2, 3, 4, 2, 0]]


def test_tst_shares_the_last_position_beyond_its_longest():
    batch = draw_batch((6,))
    model = TST(CHANNELS, WIDTH, n_heads=HEADS, max_length=3, dropout=0.0).double().eval()
    longer = TST(CHANNELS, WIDTH, n_heads=HEADS, max_length=6, dropout=0.0).double().eval()
    same = model.positions[torch.tensor([0, 1, 2, 2, 2, 2])].detach()
    longer.load_state_dict(model.state_dict() | {"positions": same})
    assert largest(model(batch) - longer(batch)) < 1e-12


@pytest.mark.parametrize(
    ("model", "options", "complaint"),
    [
        (Transformer, {"n_heads": 3}, "n_heads must divide d_model=8, got 3"),
        (Transformer, {"n_layers": 0}, "n_layers must be positive, got 0"),
        (TST, {"max_length": 0}, "max_length must be positive, got 0"),
        (TST, {"n_layers": 0}, "n_layers must be positive, got 0"),
        (NSTKA, {"mixtures": 0}, "mixtures must be positive, got 0"),
        (NSTKA, {"n_layers": 0}, "n_layers must be positive, got 0"),
        (MTAN, {"references": 0}, "references must be at least 1, got 0"),
        (MTAN, {"time_features": 1}, "time_features must be at least 2, got 1"),
        (MTAN, {"n_heads": 0}, "n_heads must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused_by_name(model, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        model(CHANNELS, WIDTH, **options)

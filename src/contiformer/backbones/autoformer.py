"""Autoformer: attention over delays in a transformer that splits series into season and trend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, gelu, pad, softmax

from contiformer.backbones.base import States, check_positive
from contiformer.backbones.regular import RegularBackbone, RowStates, WindowEmbedding, WindowOptions, WindowValues
from contiformer.nn.dropout import Dropout


class DecompositionBackbone(RegularBackbone):
    """Base class of forecasters around a :class:`DecomposingTransformer`.

    A state ahead is the decoder's, its first C numbers replaced by the forecasts: without any head these are the
    published model. States of rows are those of the encoder, which the authors' benchmark takes for all tasks other
    than forecasting.
    """

    forecasts = True
    model: DecomposingTransformer

    def within(self, window: WindowValues) -> States:
        return self.model.encode(window)

    def ahead(self, window: WindowValues) -> States:
        return self.model(window)


class Autoformer(DecompositionBackbone):
    """Autoformer (Wu et al., Decomposition Transformers with Auto-Correlation, NeurIPS 2021).

    Attention is :class:`AutoCorrelation`, without positions, and after each block the moving average of the series is
    taken out (:class:`Decomposition`). The encoder keeps the rest, the seasonal part; the decoder starts from the
    season and the trend of the last half of the window, continued by zeros and by the window's mean, and adds up the
    trends that it takes out: ``ŷ = W X_de + T_de`` with ``T_de = T_0 + Σ_l conv_l(T_{l,1} + T_{l,2} + T_{l,3})``.

    Deviations:
        - Queries have no bias: under a circular correlation it would add the same to all delays.
        - One head: in the authors' code correlations are averaged over heads, which share delays and weights.

    Args:
        factor, kernel: c of the ``c ln L`` delays, and rows of the moving average.
    """

    citation = "Wu et al., Autoformer: Decomposition Transformers with Auto-Correlation, NeurIPS 2021"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        d_ff: int | None = None,
        decoder_layers: int = 1,
        factor: float = 3.0,
        kernel: int = 25,
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        check_positive("1 to 3", factor=factor)

        def attention() -> AutoCorrelation:
            return AutoCorrelation(d_model, factor)

        self.model = DecomposingTransformer(
            input_size, d_model, d_ff or 4 * d_model, self.rate, self.history, self.horizon, (kernel,),
            encoder=[attention() for _ in range(self.n_layers)],
            decoder=[(attention(), attention()) for _ in range(decoder_layers)],
        )  # fmt: skip


class AutoCorrelation(nn.Module):
    """Series that are alike after a delay are added up: ``Σ_i softmax(R(τ_i)) roll(V, τ_i)``.

    ``R(τ)`` is the mean over the d numbers of ``Σ_t q_t k_{t-τ}``, time a circle, for all τ at once by FFT; ``τ_i`` are
    the ``c ln L`` delays of largest R, and ``roll(V, τ)_t = V_{t+τ}``. Keys and values are cut to the queries' length,
    or continued by zeros. In training delays are chosen for the whole batch, as the authors do, and weighted for each
    series.

    Shapes: x [B, N, d] and the rows attended to [B, M, d] -> [B, N, d].
    """

    def __init__(self, d_model: int, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key_value, self.out = nn.Linear(d_model, 2 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: RowStates, other: Float[Tensor, "batch others d"]) -> RowStates:
        length = x.shape[1]
        # negative padding cuts
        key_value = pad(self.key_value(other), (0, 0, 0, length - other.shape[1]))
        keys, values = key_value.chunk(2, dim=-1)
        correlation = auto_correlation(self.query(x), keys).mean(-1)
        most = min(length, max(1, int(self.factor * math.log(length))))
        chosen_by = correlation.mean(0, keepdim=True).expand_as(correlation) if self.training else correlation
        # of delays that are alike, as all are in a constant window, the shortest and not those that rounding prefers
        ties = 100 * torch.finfo(x.dtype).eps * torch.arange(length, device=x.device)
        delays = (chosen_by - ties).topk(most, dim=1).indices
        weights = softmax(correlation.gather(1, delays), dim=1)
        place = (torch.arange(length, device=x.device) + delays.unsqueeze(-1)) % length
        rows = torch.zeros(len(x), length, length, dtype=weights.dtype, device=x.device)
        # row t of this matrix has the weight of τ in column t + τ
        rows = rows.scatter(2, place.transpose(1, 2), weights.unsqueeze(1).expand(-1, length, -1))
        return self.out(rows @ values)


def auto_correlation(queries: RowStates, keys: RowStates) -> RowStates:
    """``Σ_t q_t k_{t-τ}`` for each delay τ, number by number."""
    spectrum = torch.fft.rfft(queries, dim=1) * torch.fft.rfft(keys, dim=1).conj()
    return torch.fft.irfft(spectrum, n=queries.shape[1], dim=1)


class Decomposition(nn.Module):
    """A series as its moving average T and the rest, ``S = X - T``.

    At the ends the first and the last row are repeated. With several kernels T is a mixture of their averages, weighted
    by ``softmax(w x_t + b)`` at each row and number (FEDformer's mixture of experts).

    Shapes: [B, N, d] -> S [B, N, d], T [B, N, d].
    """

    def __init__(self, kernels: Sequence[int]) -> None:
        super().__init__()
        if not kernels or min(kernels) < 1:
            raise ValueError(f"kernels of moving averages must be 1 row or more, got {tuple(kernels)}")
        self.kernels = tuple(kernels)
        self.mixture = nn.Linear(1, len(self.kernels)) if len(self.kernels) > 1 else None

    def forward(self, x: RowStates) -> tuple[Tensor, Tensor]:
        averages = [_moving_average(x, kernel) for kernel in self.kernels]
        if self.mixture is None:
            trend = averages[0]
        else:
            shares = softmax(self.mixture(x.unsqueeze(-1)), dim=-1)
            trend = (torch.stack(averages, dim=-1) * shares).sum(-1)
        return x - trend, trend


def _moving_average(x: RowStates, kernel: int) -> RowStates:
    wide = pad(x.transpose(1, 2), (kernel // 2, (kernel - 1) // 2), mode="replicate")
    return avg_pool1d(wide, kernel, stride=1).transpose(1, 2)


class DecomposingTransformer(nn.Module):
    """Encoder and decoder around any attention: the architecture that FEDformer shares with Autoformer.

    ``kernels`` are those of the moving averages; ``encoder`` has the attention of each encoder layer, ``decoder`` for
    each decoder layer those to itself and to the encoder.

    Shapes: [B, history, C] -> [B, horizon, d], the first C numbers of which are forecasts.
    """

    def __init__(
        self,
        input_size: int,
        d_model: int,
        d_ff: int,
        dropout: float,
        history: int,
        horizon: int,
        kernels: Sequence[int],
        *,
        encoder: Sequence[nn.Module],
        decoder: Sequence[tuple[nn.Module, nn.Module]],
        positions: bool = False,
    ) -> None:
        super().__init__()
        self.horizon, self.label = horizon, decoder_start(history)
        self.decomposition = Decomposition(kernels)
        self.embedding = WindowEmbedding(input_size, d_model, dropout, history if positions else 0)
        self.decoder_embedding = WindowEmbedding(input_size, d_model, dropout, self.label + horizon if positions else 0)
        self.encoder = nn.ModuleList(
            DecomposingLayer([attention], d_model, d_ff, dropout, kernels) for attention in encoder
        )
        self.decoder = nn.ModuleList(DecomposingLayer(pair, d_model, d_ff, dropout, kernels) for pair in decoder)
        self.trends = nn.ModuleList(
            nn.Conv1d(d_model, input_size, 3, padding=1, padding_mode="circular", bias=False) for _ in decoder
        )
        # the bias of a norm would go with the mean over time, which is taken out
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(d_model, bias=False) for _ in range(2))
        self.project = nn.Linear(d_model, input_size)

    def encode(self, window: WindowValues) -> States:
        """The seasonal parts of the rows."""
        x = self.embedding(window)
        for layer in self.encoder:
            x, _ = layer(x)
        return _centred(self.encoder_norm(x))

    def forward(self, window: WindowValues) -> States:
        encoded = self.encode(window)
        seasonal, trend = (part[:, -self.label :] for part in self.decomposition(window))
        level = window.mean(1, keepdim=True).expand(-1, self.horizon, -1)
        x = self.decoder_embedding(pad(seasonal, (0, 0, 0, self.horizon)))
        trend = torch.cat([trend, level], dim=1)
        for layer, project in zip(self.decoder, self.trends, strict=True):
            x, removed = layer(x, encoded)
            trend = trend + project(removed.transpose(1, 2)).transpose(1, 2)
        x = _centred(self.decoder_norm(x))
        said = trend + self.project(x)
        return torch.cat([said, x[..., said.shape[-1] :]], dim=-1)[:, -self.horizon :]


class DecomposingLayer(nn.Module):
    """``x ← season(x + attention(x))`` for each attention, ``x ← season(x + FFN(x))``; the trends are added up.

    Shapes: x [B, N, d], the rows that all attentions but the first attend to [B, M, d] -> x and trend [B, N, d].
    """

    def __init__(
        self, attentions: Sequence[nn.Module], d_model: int, d_ff: int, dropout: float, kernels: Sequence[int]
    ) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(attentions)
        self.decompositions = nn.ModuleList(Decomposition(kernels) for _ in range(len(attentions) + 1))
        self.widen, self.narrow = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, other: Tensor | None = None) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(x)
        for number, decomposition in enumerate(self.decompositions):
            if number < len(self.attentions):
                attention = self.attentions[number]
                added = attention(x, x if number == 0 or other is None else other)
            else:
                added = self.narrow(self.dropout(gelu(self.widen(x))))
            x, trend = decomposition(x + self.dropout(added))
            total = total + trend
        return x, total


def _centred(x: RowStates) -> RowStates:
    """The season: x without its mean over time."""
    return x - x.mean(1, keepdim=True)


def decoder_start(history: int) -> int:
    """Number of rows of the window before the steps ahead in a decoder: half of the window."""
    return max(1, history // 2)

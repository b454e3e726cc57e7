"""Informer: ProbSparse attention, in which only the most informative queries attend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import elu, gelu, max_pool1d, pad

from contiformer.backbones.autoformer import decoder_start
from contiformer.backbones.base import States, check_heads, check_positive
from contiformer.backbones.regular import (
    OtherStates,
    RegularBackbone,
    RowStates,
    WindowEmbedding,
    WindowOptions,
    WindowValues,
    randomness,
)
from contiformer.nn.dot_product import dot_product_attention
from contiformer.nn.dropout import Dropout
from contiformer.nn.heads import join_heads, split_heads


class Informer(RegularBackbone):
    """Informer (Zhou et al., Beyond Efficient Transformer for Long Sequence Time-Series Forecasting, AAAI 2021).

    Encoder layers with :class:`ProbSparseAttention`; between them :class:`Distilling` halves the number of rows. The
    decoder gets the last half of the window, zeros for the steps ahead, and says all of them at once: causal ProbSparse
    attention to itself, full attention to the encoder.

    States ahead are the decoder's; the paper's forecast is a linear map of them. States of rows are those of the
    encoder without distilling, as in the authors' successors' benchmark for tasks other than forecasting.

    With ``factor=None`` and ``distil=False`` it is the encoder and decoder of Vaswani et al. (2017) that forecasting
    papers compare with as Transformer: full attention everywhere, in the decoder to what is not later.

    Deviations:
        - In eval() keys are drawn by the same random numbers at every call, so answers do not change.
        - The code's rearrangement of the decoder's heads ("mix") and the second, half as long encoder of the paper's
          best variant are left out.

    Args:
        factor: c of the ``c ⌈ln L⌉`` queries that attend and of the keys that they are chosen by; None: all attend.
        distil: whether the number of rows is halved between the layers of the encoder.
    """

    citation = "Zhou et al., Informer: Beyond Efficient Transformer, AAAI 2021"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_heads: int = 8,
        d_ff: int | None = None,
        decoder_layers: int = 1,
        factor: float | None = 5.0,
        distil: bool = True,
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        check_heads(d_model, n_heads)
        check_positive("5, more for more queries, or None for all", factor=1 if factor is None else factor)

        def to_itself(causal: bool) -> FullAttention:
            if factor is None:
                return FullAttention(d_model, n_heads, self.rate, causal=causal)
            return ProbSparseAttention(d_model, n_heads, factor, causal=causal)

        def layer(*attentions: nn.Module) -> PostNormLayer:
            return PostNormLayer(attentions, d_model, d_ff or 4 * d_model, self.rate)

        self.label = decoder_start(self.history)
        self.embedding = WindowEmbedding(input_size, d_model, self.rate, self.history)
        self.decoder_embedding = WindowEmbedding(input_size, d_model, self.rate, self.label + self.horizon)
        self.encoder = nn.ModuleList(layer(to_itself(causal=False)) for _ in range(self.n_layers))
        self.distilling = nn.ModuleList(
            Distilling(d_model) if distil else nn.Identity() for _ in range(self.n_layers - 1)
        )
        self.decoder = nn.ModuleList(
            layer(to_itself(causal=True), FullAttention(d_model, n_heads, self.rate)) for _ in range(decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def within(self, window: WindowValues) -> States:
        x = self.embedding(window)
        for layer in self.encoder:
            x = layer(x)
        return self.encoder_norm(x)

    def ahead(self, window: WindowValues) -> States:
        encoded = self.encoder[0](self.embedding(window))
        for distil, layer in zip(self.distilling, self.encoder[1:], strict=True):
            encoded = layer(distil(encoded))
        encoded = self.encoder_norm(encoded)
        x = self.decoder_embedding(pad(window[:, -self.label :], (0, 0, 0, self.horizon)))
        for layer in self.decoder:
            x = layer(x, encoded)
        return self.decoder_norm(x)[:, -self.horizon :]


class FullAttention(nn.Module):
    """``softmax(Q Kᵀ / √d_k) V``; with ``causal`` a query sees itself and the rows before it.

    Shapes: x [B, N, d] and the rows attended to [B, M, d] -> [B, N, d].
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0, *, causal: bool = False) -> None:
        super().__init__()
        self.n_heads, self.rate, self.causal = n_heads, dropout, causal
        self.query, self.key_value = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: RowStates, other: OtherStates) -> RowStates:
        queries = split_heads(self.query(x), self.n_heads)
        keys, values = (split_heads(part, self.n_heads) for part in self.key_value(other).chunk(2, dim=-1))
        return self.out(join_heads(self.attend(queries, keys, values)))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[B, heads, N, d_k], twice [B, heads, M, d_k] -> [B, heads, N, d_k]."""
        dropped = self.rate if self.training else 0.0
        return dot_product_attention(queries, keys, values, dropout=dropped, causal=self.causal)


class ProbSparseAttention(FullAttention):
    """Full attention for the queries that it matters to, the mean of the values for all others.

    A query matters by ``M(q) = max_j q k_jᵀ / √d - mean_j q k_jᵀ / √d`` over a random sample of ``c ⌈ln L_K⌉`` keys;
    the ``c ⌈ln L_Q⌉`` largest are chosen. With ``causal`` the others get the sum of the values up to theirs, as in the
    authors' code.

    Shapes: as in :class:`FullAttention`.
    """

    def __init__(self, d_model: int, n_heads: int, factor: float, *, causal: bool = False) -> None:
        super().__init__(d_model, n_heads, causal=causal)
        self.factor = factor

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, others = queries.shape[2], keys.shape[2]
        chosen = self._choose(queries, keys)
        wide = chosen.unsqueeze(-1).expand(-1, -1, -1, queries.shape[-1])
        allowed = torch.arange(others, device=keys.device) <= chosen.unsqueeze(-1) if self.causal else None
        attended = dot_product_attention(queries.gather(2, wide), keys, values, allowed)
        lazy = values.cumsum(2) if self.causal else values.mean(2, keepdim=True).expand(-1, -1, rows, -1)
        return lazy.scatter(2, wide, attended)

    @torch.no_grad()
    def _choose(self, queries: Tensor, keys: Tensor) -> Int[Tensor, "batch heads chosen"]:
        rows, others = queries.shape[2], keys.shape[2]
        samples, most = (min(n, math.ceil(self.factor * math.ceil(math.log(n)))) for n in (others, rows))
        if most == rows:
            return torch.arange(rows, device=keys.device).expand(*queries.shape[:2], -1)
        generator = randomness(self.training, keys.device)
        sample = torch.randint(others, (rows, samples), device=keys.device, generator=generator)
        products = torch.einsum("bhne,bhnse->bhns", queries, keys[:, :, sample])
        matters = products.amax(-1) - products.sum(-1) / others
        return matters.topk(most, dim=-1).indices


class Distilling(nn.Module):
    """``maxpool(ELU(BN(conv(x))))``: half as many rows, of which the strongest remain.

    Shapes: [B, N, d] -> [B, (N + 1) // 2, d].
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(d_model, d_model, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x: RowStates) -> Float[Tensor, "batch fewer d"]:
        strong = elu(self.norm(self.conv(x.transpose(1, 2))))
        return max_pool1d(strong, 3, stride=2, padding=1).transpose(1, 2)


class PostNormLayer(nn.Module):
    """``x ← LN(x + attention(x))`` for each attention, ``x ← LN(x + FFN(x))`` with GELU.

    Shapes: x [B, N, d], the rows that all attentions but the first attend to [B, M, d] -> [B, N, d].
    """

    def __init__(self, attentions: Sequence[nn.Module], d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(attentions)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(len(attentions) + 1))
        self.widen, self.narrow = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        for number, (attention, norm) in enumerate(zip(self.attentions, self.norms, strict=False)):
            x = norm(x + self.dropout(attention(x, x if number == 0 or other is None else other)))
        widened = self.dropout(gelu(self.widen(x)))
        return self.norms[-1](x + self.dropout(self.narrow(widened)))

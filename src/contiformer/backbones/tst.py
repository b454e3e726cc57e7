"""The time series transformer with batch normalisation."""

from __future__ import annotations

import math

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from contiformer.backbones.base import Backbone, QueryTimes, States, check_positive
from contiformer.backbones.encoder_layer import EncoderLayer, TokenEmbedding, TokenMask, Tokens, TokenStates, encode
from contiformer.data.batch import Batch
from contiformer.nn.clock import TimeEncoding
from contiformer.nn.dropout import Dropout


class BatchNormLayer(EncoderLayer):
    """A layer with batch normalisation over all valid tokens of a batch; padding does not enter the statistics."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, d_ff, dropout, activation=nn.GELU, norm=nn.BatchNorm1d)

    def normalise(self, norm: nn.Module, x: TokenStates, valid: TokenMask) -> TokenStates:
        """By the statistics of the batch in training, where it has at least two tokens; else by the running ones."""
        assert isinstance(norm, nn.BatchNorm1d)
        if self.training and int(valid.sum()) > 1:
            return torch.zeros_like(x).masked_scatter(valid.unsqueeze(-1), norm(x[valid]))
        flat = x.flatten(0, 1)
        mean, variance = norm.running_mean, norm.running_var
        return nn.functional.batch_norm(flat, mean, variance, norm.weight, norm.bias, eps=norm.eps).view_as(x)


class TST(Backbone):
    """Time series transformer (Zerveas et al., A Transformer-based Framework for Multivariate Time Series, KDD 2021).

    ``x_i = √d (W [values_i, observed_i] + b) + p_i + e(t_i)`` with learned positions ``p_i``, then layers
    ``y = BN(x + softmax(Q Kᵀ / √d_k) V)``, ``z = BN(y + FFN(y))`` with GELU, and a last GELU, as in the authors' code.
    Batch normalisation is theirs, too: it bears outliers that layer normalisation spreads over all channels.

    Deviations:
        - The original knows positions only. Here the real times are told, too (``e(t) = [sin(ω_k t), cos(ω_k t)]``),
          because a position says little where gaps differ.
        - Positions count observations, so rows of padding change nothing; from ``max_length`` on all share the last
          vector (the original is made for the longest series of its data).
        - Padding does not enter the statistics of the batch normalisation; in the authors' code it does.
        - Queries are a learned vector with the position of the last observation before them. In training they take
          part in the batch's statistics.

    Args:
        max_length: positions that have a vector of their own.
    """

    citation = "Zerveas et al., A Transformer-based Framework for Multivariate Time Series, KDD 2021"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 3,
        dropout: float = 0.1,
        n_heads: int = 8,
        d_ff: int = 256,
        max_length: int = 1024,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive(max_length=max_length)
        self.embedding = TokenEmbedding(input_size, d_model)
        self.encoding = TimeEncoding(d_model)
        self.positions = nn.Parameter(torch.empty(max_length, d_model).uniform_(-0.02, 0.02))
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(BatchNormLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers))

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        tokens = self.embedding(batch, query_times)
        position = self.positions[_places(tokens).clamp(max=len(self.positions) - 1)]
        x = math.sqrt(self.d_model) * tokens.x + position + self.encoding(tokens.times).to(tokens.x.dtype)
        return gelu(encode(self.layers, tokens.with_states(self.dropout(x)), asked=query_times is not None))


def _places(tokens: Tokens) -> Int[Tensor, "batch tokens"]:
    """The number of observations before each token, or before the last one that a query does not precede."""
    seen = tokens.observations
    by_rows = seen.valid.cumsum(1)
    later = tokens.queries.times.unsqueeze(2) >= seen.times.unsqueeze(1)
    by_queries = (later & seen.valid.unsqueeze(1)).sum(2)
    return (torch.cat([by_rows, by_queries], dim=1) - 1).clamp(min=0)

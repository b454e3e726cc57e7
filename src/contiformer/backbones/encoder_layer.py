"""Transformer encoder layers over tokens: observations, and queries that attend to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.backbones.base import QueryTimes, States, check_heads
from contiformer.data.batch import Batch
from contiformer.nn.dot_product import dot_product_attention
from contiformer.nn.dropout import Dropout
from contiformer.nn.heads import join_heads, split_heads

TokenStates = Float[Tensor, "batch tokens d"]
TokenMask = Bool[Tensor, "batch tokens"]


@dataclass(frozen=True)
class Tokens:
    """N observations and behind them Q queries.

    Attributes:
        x: [B, N + Q, d].
        times: [B, N + Q] float64, 0 in rows of padding.
        valid: [B, N + Q], False in rows of padding.
        sees: [B, N + Q, N], the observations that each token attends to. No token attends to a query: an answer does
            not depend on other queries.
    """

    x: TokenStates
    times: Float[Tensor, "batch tokens"]
    valid: TokenMask
    sees: Bool[Tensor, "batch tokens obs"]

    @property
    def observations(self) -> Tokens:
        """The first N: the tokens themselves where there are no queries."""
        return self if self.sees.shape[1] == self.sees.shape[2] else self._part(slice(0, self.sees.shape[2]))

    @property
    def queries(self) -> Tokens:
        """The last Q."""
        return self._part(slice(self.sees.shape[2], None))

    def with_states(self, x: TokenStates) -> Tokens:
        """The same tokens with other states."""
        return replace(self, x=x)

    def _part(self, which: slice) -> Tokens:
        return Tokens(self.x[:, which], self.times[:, which], self.valid[:, which], self.sees[:, which])


def visible(batch: Batch, query_times: QueryTimes, *, causal: bool) -> Bool[Tensor, "batch tokens obs"]:
    """The attention mask of observations and, below them, of queries; True: attend. Padding is attended to by none.

    A causal observation attends to itself and the rows before it, a causal query to all rows that are not later.
    """
    present = batch.observed.any(-1)
    batch_size, obs = present.shape
    by_rows = torch.ones(obs, obs, dtype=torch.bool, device=present.device)
    by_rows = (by_rows.tril() if causal else by_rows).expand(batch_size, -1, -1)
    if query_times is not None:
        early = batch.times.unsqueeze(1) <= query_times.to(batch.times).unsqueeze(2)
        by_rows = torch.cat([by_rows, early if causal else torch.ones_like(early)], dim=1)
    return by_rows & present.unsqueeze(1)


class TokenEmbedding(nn.Module):
    """``x_i = W [values_i, observed_i] + b`` for an observation, one learned mask token for every query."""

    def __init__(self, input_size: int, d_model: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.project = nn.Linear(2 * input_size, d_model)
        self.mask_token = nn.Parameter(0.02 * torch.randn(d_model))

    def forward(self, batch: Batch, query_times: QueryTimes) -> Tokens:
        """Tokens without any notion of time yet."""
        shown = torch.where(batch.observed, batch.values, 0.0)
        x = self.project(torch.cat([shown, batch.observed.to(shown.dtype)], dim=-1))
        valid = batch.observed.any(-1)
        times = torch.where(valid, batch.times, 0.0)
        sees = visible(batch, query_times, causal=self.causal)
        if query_times is not None:
            x = torch.cat([x, self.mask_token.to(x.dtype).expand(*query_times.shape, -1)], dim=1)
            times = torch.cat([times, query_times.to(times)], dim=1)
            valid = torch.cat([valid, valid.new_ones(query_times.shape)], dim=1)
        return Tokens(x, times, valid, sees)


def encode(layers: Iterable[nn.Module], tokens: Tokens, *, asked: bool) -> States:
    """All layers, one after the other; the states of the queries where there are any, else of the observations."""
    stack = list(layers)
    for layer in stack[:-1]:
        tokens = tokens.with_states(layer(tokens, tokens.observations))
    return stack[-1](tokens.queries if asked else tokens, tokens.observations)


class EncoderLayer(nn.Module):
    """``y = norm(x + attention(x))``, ``z = norm(y + FFN(y))``, where all tokens attend to observations only.

    A token that may attend to no observation gets zeros from the attention. Dropout is that of the attention weights,
    within the feed-forward block (of width ``d_ff``, None: ``4 * d_model``) and after both.

    Shapes: tokens [B, T, d] and observations [B, N, d] -> [B, T, d].

    Example:
        >>> from contiformer.backbones import EncoderLayer
        >>> layer = EncoderLayer(d_model=16, n_heads=2, dropout=0.0)
        >>> layer.feed_forward[0].out_features
        64
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int | None = None,
        dropout: float = 0.1,
        *,
        activation: type[nn.Module] = nn.ReLU,
        norm: type[nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        check_heads(d_model, n_heads)
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.n_heads, self.rate = n_heads, dropout
        self.query, self.key_value = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, d_ff), activation(), Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        self.attention_norm, self.feed_forward_norm = norm(d_model), norm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tokens, observations: Tokens) -> TokenStates:
        attended = self.out(self._attend(tokens, observations))
        y = self.normalise(self.attention_norm, tokens.x + self.dropout(attended), tokens.valid)
        return self.normalise(self.feed_forward_norm, y + self.dropout(self.feed_forward(y)), tokens.valid)

    def bias(self, tokens: Tokens, observations: Tokens) -> Float[Tensor, "batch tokens obs"] | None:
        """A bias of the attention scores; none here."""
        return None

    def normalise(self, norm: nn.Module, x: TokenStates, valid: TokenMask) -> TokenStates:
        """Token by token here, so that it does not matter which are valid."""
        return norm(x)

    def _attend(self, tokens: Tokens, observations: Tokens) -> Tensor:
        if observations.x.shape[1] == 0:
            return torch.zeros_like(tokens.x)
        some = tokens.sees.any(-1, keepdim=True)
        # softmax needs something to look at, also where the result is not used
        allowed = tokens.sees | ~some
        bias = self.bias(tokens, observations)
        mask = allowed if bias is None else torch.where(allowed, bias, -torch.inf)
        queries = split_heads(self.query(tokens.x), self.n_heads)
        keys, values = (split_heads(x, self.n_heads) for x in self.key_value(observations.x).chunk(2, dim=-1))
        dropout = self.rate if self.training else 0.0
        attended = dot_product_attention(queries, keys, values, mask.unsqueeze(1), dropout)
        return torch.where(some, join_heads(attended), 0.0)

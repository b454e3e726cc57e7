"""Observations and queries as tokens: what every transformer among the backbones starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.data.batch import Batch


@dataclass(frozen=True)
class Tokens:
    """N observations and behind them Q queries.

    Attributes:
        x: [B, N + Q, d].
        times: [B, N + Q] float64, 0 in rows of padding.
        valid: [B, N + Q], False in rows of padding.
        sees: [B, N + Q, N], the observations that each token may look at. No token sees a query, so that no answer
            depends on what else is asked.
    """

    x: Float[Tensor, "batch tokens d"]
    times: Float[Tensor, "batch tokens"]
    valid: Bool[Tensor, "batch tokens"]
    sees: Bool[Tensor, "batch tokens obs"]

    @property
    def observations(self) -> Tokens:
        """The first N: the tokens themselves where there are no queries."""
        if self.sees.shape[1] == self.sees.shape[2]:
            return self
        return self._part(slice(0, self.sees.shape[2]))

    @property
    def queries(self) -> Tokens:
        """The last Q."""
        return self._part(slice(self.sees.shape[2], None))

    def with_states(self, x: Float[Tensor, "batch tokens d"]) -> Tokens:
        """The same tokens with other states."""
        return replace(self, x=x)

    def _part(self, which: slice) -> Tokens:
        return Tokens(self.x[:, which], self.times[:, which], self.valid[:, which], self.sees[:, which])


def visible(
    batch: Batch, query_times: Float[Tensor, "batch query"] | None, *, causal: bool
) -> Bool[Tensor, "batch tokens obs"]:
    """Which observations the observations see, and below them which the queries see.

    Rows of padding are seen by none. A causal observation sees itself and the rows before it, a causal query all rows
    that are not later.
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
    """``x_i = W [values_i, observed_i] + b`` for an observation, one learned vector for every query.

    The learned vector is the mask token of the ContiFormer paper's transformer on spirals. Values that were not
    observed are shown as 0.
    """

    def __init__(self, input_size: int, d_model: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.project = nn.Linear(2 * input_size, d_model)
        self.mask_token = nn.Parameter(0.02 * torch.randn(d_model))

    def forward(self, batch: Batch, query_times: Float[Tensor, "batch query"] | None) -> Tokens:
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


class TokenLayer(Protocol):
    """From tokens and the observations among them to the tokens' next states."""

    def __call__(self, tokens: Tokens, observations: Tokens) -> Tensor:
        """States [B, tokens, d]."""


def encode(layers: Iterable[TokenLayer], tokens: Tokens, *, asked: bool) -> Float[Tensor, "batch query d"]:
    """All layers, one after the other; the states of the queries where there are any, else of the observations."""
    stack = list(layers)
    for layer in stack[:-1]:
        tokens = tokens.with_states(layer(tokens, tokens.observations))
    return stack[-1](tokens.queries if asked else tokens, tokens.observations)

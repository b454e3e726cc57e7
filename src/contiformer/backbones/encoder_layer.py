"""The layer of Vaswani et al., for observations and queries alike."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.backbones.tokens import Tokens
from contiformer.nn.dot_product import dot_product_attention
from contiformer.nn.dropout import Dropout
from contiformer.nn.heads import join_heads, split_heads


class EncoderLayer(nn.Module):
    """``y = norm(x + attention(x))``, ``z = norm(y + FFN(y))``, where all tokens attend to observations only.

    A token that sees no observation attends to nothing and gets zeros from the attention.

    Args:
        d_model, n_heads: width and heads.
        d_ff: width of the feed-forward block; None: ``4 * d_model``.
        dropout: of the attention weights, within the feed-forward block and after both.
        activation: of the feed-forward block.
        norm: the kind of normalisation, made twice with ``d_model``.

    Shapes: tokens [B, T, d] and observations [B, N, d] -> [B, T, d].
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
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model={d_model}, got {n_heads}: choose another of the two")
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.n_heads, self.rate = n_heads, dropout
        self.query, self.key_value = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, d_ff), activation(), Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        self.attention_norm, self.feed_forward_norm = norm(d_model), norm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tokens, observations: Tokens) -> Float[Tensor, "batch tokens d"]:
        """The next states of the tokens."""
        attended = self.out(self._attend(tokens, observations))
        y = self.normalise(self.attention_norm, tokens.x + self.dropout(attended), tokens.valid)
        return self.normalise(self.feed_forward_norm, y + self.dropout(self.feed_forward(y)), tokens.valid)

    def bias(self, tokens: Tokens, observations: Tokens) -> Float[Tensor, "batch tokens obs"] | None:
        """What is added to the scores of the attention; nothing here."""
        return None

    def normalise(
        self, norm: nn.Module, x: Float[Tensor, "batch tokens d"], valid: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens d"]:
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

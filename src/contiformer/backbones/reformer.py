"""Reformer: attention among rows with the same locality-sensitive hash."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from contiformer.backbones.base import States, check_heads, check_positive
from contiformer.backbones.informer import PostNormLayer
from contiformer.backbones.regular import RegularBackbone, WindowEmbedding, WindowOptions, WindowValues, randomness
from contiformer.nn.heads import join_heads, split_heads

HeadRows = Float[Tensor, "batch heads rows part"]
#: The score of a row for itself: it attends to itself only where there is nothing else.
ITSELF = -5e4
#: The score of padding.
NOTHING = -1e9


class Reformer(RegularBackbone):
    """Reformer (Kitaev et al., The Efficient Transformer, ICLR 2020) as a forecaster.

    The window and, behind it, zeros for the steps ahead pass encoder layers with :class:`LSHAttention`. States are
    those of the last layer; the forecast of the benchmarks is a linear map of them.

    Deviations:
        - The paper has no forecasts. Zeros for the steps ahead, chunks of 4 rows and 4 rounds of hashing are those of
          the Time Series Library, which the forecasting papers compare with.
        - Layers are ``LN(x + f(x))``, as there. Reversible layers and chunks in the feed-forward block, which save
          memory on sequences of many thousands of rows, are left out.
        - In eval() the same random rotations are used at every call, so answers do not change.

    Args:
        chunk, rounds: rows in a chunk, on average those of a bucket, and rounds of hashing.
    """

    citation = "Kitaev et al., Reformer: The Efficient Transformer, ICLR 2020"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_heads: int = 8,
        d_ff: int | None = None,
        chunk: int = 4,
        rounds: int = 4,
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        check_heads(d_model, n_heads)
        check_positive("4, or more for more exact attention", chunk=chunk, rounds=rounds)
        self.embedding = WindowEmbedding(input_size, d_model, self.rate, self.history + self.horizon)
        self.layers = nn.ModuleList(
            PostNormLayer([LSHAttention(d_model, n_heads, chunk, rounds)], d_model, d_ff or 4 * d_model, self.rate)
            for _ in range(self.n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def states(self, window: WindowValues) -> States:
        x = self.embedding(pad(window, (0, 0, 0, self.horizon)))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class LSHAttention(nn.Module):
    """Attention with one vector for query and key, ``softmax_j(q_i k_j / √d_k) v_j`` with ``k_j = q_j / |q_j|``.

    The sum is over the rows j that come near i in any round of hashing. In a round, rows are sorted by their bucket
    ``argmax [q R, -q R]`` with a random matrix R, those of one bucket by their place, and cut into chunks of m; near
    are the rows of one's own chunk and of the one before it. A row that is near in several rounds counts once.

    Shapes: x [B, N, d] -> [B, N, d].
    """

    def __init__(self, d_model: int, n_heads: int, chunk: int, rounds: int) -> None:
        super().__init__()
        self.n_heads, self.chunk, self.rounds = n_heads, chunk, rounds
        self.query, self.value = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "batch rows d"], other: Tensor | None = None) -> Float[Tensor, "batch rows d"]:
        """The attention's output; ``other`` is x."""
        queries, values = (split_heads(part(x), self.n_heads) for part in (self.query, self.value))
        return self.out(join_heads(self.attend(queries, values)))

    def attend(self, queries: HeadRows, values: HeadRows) -> HeadRows:
        """The attention of each head."""
        rows, part = queries.shape[2:]
        # two chunks hold all rows: larger ones would hold the same
        size = min(self.chunk, math.ceil(rows / 2))
        extra = -rows % (2 * size)
        queries, values = (pad(x, (0, 0, 0, extra)) for x in (queries, values))
        order, chunk_of = self._sort(queries, rows, size)

        def chunks(x: Tensor) -> Tensor:
            """[B, heads, N, e] as [B, heads, rounds, chunks, size, e]."""
            wide = x.unsqueeze(2).expand(-1, -1, self.rounds, -1, -1)
            return wide.gather(3, order.unsqueeze(-1).expand(-1, -1, -1, -1, x.shape[-1])).unflatten(3, (-1, size))

        def with_chunk_before(x: Tensor) -> Tensor:
            return torch.cat([x, x.roll(1, 3)], dim=4)

        place = order.unflatten(3, (-1, size))
        near = with_chunk_before(place)
        scores = chunks(queries) @ with_chunk_before(chunks(normalize(queries, dim=-1))).mT / math.sqrt(part)
        scores = scores.masked_fill(place.unsqueeze(-1) == near.unsqueeze(-2), ITSELF)
        scores = scores.masked_fill((near >= rows).unsqueeze(-2), NOTHING)
        mine = chunks(chunk_of)
        times = _times_near(mine, with_chunk_before(mine), queries.shape[2] // size)
        scores = scores - times.to(scores.dtype).log()
        weight = scores.logsumexp(-1, keepdim=True)
        attended = (scores - weight).exp() @ with_chunk_before(chunks(values))
        # from the order of the buckets to that of the rows, and then a softmax over the rounds
        back = order.argsort(-1).unsqueeze(-1)
        weight = weight.flatten(3, 4).gather(3, back)
        attended = attended.flatten(3, 4).gather(3, back.expand(-1, -1, -1, -1, part))
        return (weight.softmax(2) * attended).sum(2)[:, :, :rows]

    @torch.no_grad()
    def _sort(self, queries: Tensor, rows: int, size: int) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
        """Rows in the order of their buckets [B, heads, rounds, N], and the chunk of each row [B, heads, N, rounds]."""
        length, part = queries.shape[2:]
        buckets = length // size
        shape, generator = (self.rounds, part, buckets // 2), randomness(self.training, queries.device)
        rotations = torch.randn(shape, dtype=queries.dtype, device=queries.device, generator=generator)
        turned = torch.einsum("bhne,rek->bhrnk", queries, rotations)
        bucket = torch.cat([turned, -turned], dim=-1).argmax(-1)
        # what only fills up comes last
        bucket = bucket.masked_fill(torch.arange(length, device=queries.device) >= rows, buckets)
        order = bucket.argsort(dim=-1, stable=True)
        # small numbers, because pairs of rows are compared in all rounds
        return order, (order.argsort(-1) // size).to(torch.int32).transpose(2, 3)


def _times_near(mine: Tensor, theirs: Tensor, chunks: int) -> Int[Tensor, "..."]:
    """In how many rounds each pair is near, from the chunks of both in all rounds."""
    next_to_theirs = (theirs + 1) % chunks
    own, theirs, next_to_theirs = mine.unsqueeze(-2), theirs.unsqueeze(-3), next_to_theirs.unsqueeze(-3)
    return ((own == theirs) | (own == next_to_theirs)).sum(-1, dtype=mine.dtype)

"""Pooling: from the states of a series to one state, and to one prediction."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.nn.dropout import Dropout
from contiformer.nn.summaries import KINDS, channel_summaries
from contiformer.tasks.inputs import InputOptions

PoolingKind = Literal["learned", "mean", "last"]
#: Standard deviations at which a standardised summary statistic is clipped.
CLIP = 5.0
#: Series whose statistics are computed at once.
BATCH = 128


class Pooling(nn.Module):
    """Pool the states ``z(t_i)`` of a series into one vector.

    - ``learned``: queries ``u_k`` that are learned weigh the points by ``softmax_i(u_k · z(t_i))``; states know their
      time, so the weights can depend on it. They begin as the mean. Beside them stands the largest value over the
      points, number by number.
    - ``mean``: over the points.
    - ``last``: the state at the last point.

    Shapes: states [B, L, d], mask [B, L] -> [B, size]. A series without points gets zeros.

    Example:
        >>> import torch
        >>> from contiformer.tasks import Pooling
        >>> states, mask = torch.arange(6.0).view(1, 3, 2), torch.tensor([[True, True, False]])
        >>> Pooling(2, "mean")(states, mask).tolist()
        [[1.0, 2.0]]
    """

    def __init__(self, d_model: int, kind: PoolingKind = "learned", queries: int = 4) -> None:
        super().__init__()
        if kind not in get_args(PoolingKind):
            raise ValueError(f"pooling must be one of {', '.join(get_args(PoolingKind))}, got {kind!r}")
        self.kind = kind
        self.size = d_model * (queries + 1 if kind == "learned" else 1)
        if kind == "learned":
            self.queries = nn.Parameter(torch.zeros(queries, d_model))

    def forward(
        self, states: Float[Tensor, "batch points d"], mask: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch size"]:
        if self.kind == "last" and mask.shape[1]:
            last = (torch.arange(mask.shape[1], device=mask.device) * mask).amax(1)
            picked = states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)
            return picked * mask.any(1, keepdim=True)
        means = self.weights(states, mask).to(states.dtype).matmul(states).flatten(1)
        if self.kind != "learned":
            return means
        floor = torch.finfo(states.dtype).min
        largest = states.masked_fill(~mask.unsqueeze(-1), floor).amax(1) if mask.shape[1] else states.sum(1)
        return torch.cat([means, torch.where(mask.any(1, keepdim=True), largest, 0.0)], dim=-1)

    def weights(
        self, states: Float[Tensor, "batch points d"], mask: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch queries points"]:
        """The weight of each point; they sum to 1 over a series."""
        if self.kind == "learned":
            scores = self.queries @ states.mT
        elif self.kind == "mean":
            scores = states.new_zeros(states.shape[0], 1, states.shape[1])
        else:
            # the last point is the one with no other behind it
            behind = mask.flip(1).cumsum(1).flip(1)
            return (mask & (behind == 1)).to(states.dtype).unsqueeze(1)
        allowed = mask.unsqueeze(1)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) * allowed


def summary_numbers(batch: Batch) -> Float[Tensor, "batch numbers"]:
    """Summary statistics of each channel, static features and whether they are known, in one row for each series."""
    parts = [channel_summaries(batch.values, batch.times, batch.observed).flatten(1)]
    if batch.static is not None and batch.static_observed is not None:
        parts += [batch.static, batch.static_observed.to(batch.static.dtype)]
    return torch.cat(parts, 1)


def summary_moments(data: SeriesSet) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each number of :func:`summary_numbers` over scaled series; at least 1e-3."""
    rows = [summary_numbers(batch) for batch in Loader(data, BATCH, shuffle=False) if isinstance(batch, Batch)]
    numbers = torch.cat(rows).double()
    std = numbers.std(0, correction=0).clamp(min=1e-3)
    return [round(x, 6) for x in numbers.mean(0).tolist()], [round(x, 6) for x in std.tolist()]


class PooledHead(nn.Module):
    """A linear map of the pooled states and, with ``summaries``, of summary statistics of each channel.

    The summaries (:func:`~contiformer.nn.summaries.channel_summaries`) and the static features go through a hidden
    layer of their own, ``hidden`` wide and with dropout: where channels are seldom observed, how often and how high
    says much by itself. They are standardised by ``moments``, those of the training series (:func:`summary_moments`).
    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        d_model: int,
        inputs: InputOptions,
        outputs: int,
        *,
        pooling: PoolingKind = "learned",
        summaries: bool = False,
        moments: tuple[list[float], list[float]] | None = None,
        dropout: float = 0.2,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        self.pooling = Pooling(d_model, pooling)
        self.summary = None
        if summaries:
            numbers = KINDS * inputs.channels + 2 * inputs.static
            centre, spread = moments or ([0.0] * numbers, [1.0] * numbers)
            self.register_buffer("centre", torch.tensor(centre), persistent=False)
            self.register_buffer("spread", torch.tensor(spread), persistent=False)
            self.summary = nn.Sequential(Dropout(dropout), nn.Linear(numbers, hidden), nn.GELU(), Dropout(dropout))
        self.out = nn.Linear(self.pooling.size + (hidden if summaries else 0), outputs)

    def forward(
        self, states: Float[Tensor, "batch points d"], shown: Batch, batch: Batch
    ) -> Float[Tensor, "batch outputs"]:
        """The prediction from the states at the points of ``shown``, for the series of ``batch``."""
        pooled = self.pooling(states, shown.observed.any(-1))
        if self.summary is None:
            return self.out(pooled).float()
        numbers = ((summary_numbers(batch) - self.centre) / self.spread).clamp(-CLIP, CLIP)
        return self.out(torch.cat([pooled, self.summary(numbers).to(pooled.dtype)], 1)).float()

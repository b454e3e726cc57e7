"""What comes next, at any times after the last observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.nn.windows import fill_channels, window_means
from contiformer.tasks.at_times import AtTimes
from contiformer.tasks.inputs import Inputs

#: Standard deviations of a window below this share of the channel's own are taken as this share.
SMALLEST_SPREAD = 0.1


class Forecasting(AtTimes):
    """Values at times after the last observation, relative to the level and the spread of what was seen.

    Each channel of each window is centred and divided by its own spread before the model sees it, and what the model
    says is turned back (reversible instance normalisation, Kim et al., 2022). The answer is the sum of a linear
    forecast from the recent past (:class:`LinearPast`) and of what the backbone knows.

    With ``separate`` each channel is forecast from its own past alone, with the same weights for all: on short records
    that change their ways, what channels have to do with each other is learned wrongly more often than not.

    Args:
        backbone, inputs, options: see :class:`AtTimes`. With ``separate`` for one channel.
        reach: how far ahead it is trained to answer, in scaled time.
        normalize: "window": as above; "none": values as they come.
        past: intervals before the last point that the linear forecast goes by; 0: no linear forecast.
    """

    def __init__(
        self,
        backbone: Backbone,
        inputs: Inputs,
        *,
        reach: float,
        separate: bool = True,
        normalize: str = "window",
        past: int = 24,
        **options: Any,
    ) -> None:
        super().__init__(backbone, inputs, **options)
        if normalize not in ("window", "none"):
            raise ValueError(f"normalize must be 'window' or 'none', got {normalize!r}")
        self.separate, self.normalize = separate, normalize
        self.past = LinearPast(past, reach) if past else None

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query channels numbers"]:
        """What the head says at the query times, in the units of the batch."""
        if not self.separate or batch.values.shape[-1] == 1:
            return self._together(batch, query_times)
        said = self._together(_apart(batch), query_times.repeat_interleave(batch.values.shape[-1], 0))
        return said.squeeze(2).unflatten(0, (len(batch), -1)).transpose(1, 2)

    def _together(self, batch: Batch, query_times: Tensor) -> Float[Tensor, "batch query channels numbers"]:
        level, spread = self._level(batch)
        values = torch.where(batch.observed, (batch.values - level) / spread, 0.0)
        shown = replace(batch, values=values)
        base = None
        if self.past is not None:
            base = self.past(shown, query_times)
        said = self.head(self.states(shown, query_times), None, base)
        location, others = said[..., :1], said[..., 1:]
        location = location * spread.unsqueeze(-1) + level.unsqueeze(-1)
        others = others * spread.unsqueeze(-1)
        if self.head.law == "quantiles":
            others = others + level.unsqueeze(-1)
        return torch.cat([location, others], dim=-1)

    def _level(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """[B, 1, C] each: what becomes 0, and what becomes 1."""
        if self.normalize == "none":
            zero = batch.values.new_zeros(len(batch), 1, batch.values.shape[-1])
            return zero, zero + 1
        count = batch.observed.sum(1, keepdim=True).clamp(min=1)
        mean = batch.values.sum(1, keepdim=True) / count
        variance = (torch.where(batch.observed, batch.values - mean, 0.0)).square().sum(1, keepdim=True) / count
        return mean, (variance + SMALLEST_SPREAD**2).sqrt()


def _apart(batch: Batch) -> Batch:
    """[B, L, C] as [B C, L, 1]: every channel as a series of its own."""
    channels = batch.values.shape[-1]

    def each(x: Tensor) -> Tensor:
        return x.repeat_interleave(channels, 0)

    return Batch(
        times=each(batch.times),
        values=batch.values.transpose(1, 2).flatten(0, 1).unsqueeze(-1),
        observed=batch.observed.transpose(1, 2).flatten(0, 1).unsqueeze(-1),
        lengths=each(batch.lengths),
        static=None if batch.static is None else each(batch.static),
        static_observed=None if batch.static_observed is None else each(batch.static_observed),
    )


class LinearPast(nn.Module):
    """A linear forecast in continuous time: weighted means of the recent past, the weights depending on the lead.

    ``y(T + s) = Σ_k w_k(s) m_k + b(s)`` with the exact means ``m_k`` of a channel's path over the k-th of equally long
    intervals before its window's last time T, its last value among them, and weights that are piecewise linear in the
    lead s. The same weights for all channels; they begin with the last value held.

    Args:
        intervals: how many.
        reach: the longest lead it is trained for, in scaled time; the intervals go back by 1.
        knots: of the weights.
    """

    edges: Tensor

    def __init__(self, intervals: int, reach: float, knots: int = 24) -> None:
        super().__init__()
        self.reach, self.knots = reach, knots
        edges = torch.linspace(-1.0, 0.0, intervals + 1, dtype=torch.float64)
        # a last interval of no length is the last value itself
        self.register_buffer("edges", torch.cat([edges, edges[-1:]]), persistent=False)
        weight = torch.zeros(knots, intervals + 1)
        weight[:, -1] = 1.0
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(torch.zeros(knots))

    def forward(self, batch: Batch, query_times: Float[Tensor, "batch query"]) -> Float[Tensor, "batch query channels"]:
        """The forecast."""
        filled = fill_channels(batch.values, batch.times, batch.observed)
        end = batch.times.gather(1, (batch.lengths - 1).clamp(min=0)[:, None])
        means = window_means(filled, batch.times, batch.lengths, self.edges, end).squeeze(1)
        lead = (query_times - end) / self.reach
        place = (lead.clamp(0, 1) * (self.knots - 1)).to(means.dtype)
        low = place.floor().long().clamp(max=self.knots - 2)
        share = (place - low).unsqueeze(-1)
        weight = torch.lerp(self.weight[low], self.weight[low + 1], share)
        bias = torch.lerp(self.bias[low], self.bias[low + 1], share.squeeze(-1))
        return weight @ means + bias.unsqueeze(-1)

"""Forecasting: values at any times after the last observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.nn.local_features import fill_channels, window_means
from contiformer.tasks.at_times import AtTimes
from contiformer.tasks.inputs import Inputs

#: Added to the variance of a window: spreads far below this share of the channel's own are taken as this share.
SMALLEST_SPREAD = 0.1
#: Of the linear part: times the learning rate of the rest; and how much its dependence on seasons decays.
LINEAR_RATE, SEASONAL_DECAY = 5.0, 0.3


class Forecasting(AtTimes):
    """Values at times after the last observation, relative to the level and the spread of what was seen.

    Each channel of each window is centred and divided by its own spread before the model sees it, and what the model
    says is turned back (reversible instance normalisation, Kim et al., 2022). The answer is the sum of a linear
    forecast from the recent past (:class:`LinearPast`) and of what the backbone knows.

    With ``separate`` each channel is forecast from its own past alone, with the same weights for all: on short records
    that drift, dependence between channels is learned wrongly more often than not.

    Args:
        backbone, inputs, options: see :class:`AtTimes`. With ``separate`` for one channel.
        reach: how far ahead it is trained to answer, in scaled time.
        normalize: "window": as above; "none": values as they come.
        smallest_spread: its square is added to the variance of a window, as a share of the channel's own.
        past: intervals before the last point that the linear forecast goes by; 0: no linear forecast.
        seasons, start, unit: periods in the time of the data, which is ``start + unit`` times that of the batch; the
            linear forecast depends on where in them the window ends.
        calendar: the backbone is told where in the seasons each row is: sine and cosine of each as channels behind the
            others, ``2 · len(seasons)`` more than the series have.

    Example:
        >>> import torch
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import Forecasting, InputOptions, Inputs
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = Forecasting(make_backbone("contiformer", inputs.size, d_model=16), inputs, outputs=1, reach=1.0)
        >>> task(collate([Series.of([0, 1], [[1.0], [2.0]])]), torch.tensor([[1.5, 2.0]])).shape
        torch.Size([1, 2, 1, 1])
    """

    def __init__(
        self,
        backbone: Backbone,
        inputs: Inputs,
        *,
        reach: float,
        separate: bool = True,
        normalize: str = "window",
        smallest_spread: float = SMALLEST_SPREAD,
        past: int = 24,
        seasons: Sequence[float] = (),
        start: float = 0.0,
        unit: float = 1.0,
        calendar: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(backbone, inputs, **options)
        if normalize not in ("window", "none"):
            raise ValueError(f"normalize must be 'window' or 'none', got {normalize!r}")
        self.separate, self.normalize, self.smallest_spread = separate, normalize, smallest_spread
        self.seasons, self.start, self.unit, self.calendar = tuple(seasons), start, unit, calendar
        self.past = LinearPast(past, reach, phases=2 * len(self.seasons)) if past else None

    def rate_of(self, name: str, field_rate: float) -> float:
        """The linear part learns faster."""
        return LINEAR_RATE if name.startswith("past.") else super().rate_of(name, field_rate)

    def decay_of(self, name: str, parameter: Tensor, weight_decay: float) -> float:
        """The linear part does not decay towards zero, but what seasons change in it does."""
        if name == "past.seasonal":
            return SEASONAL_DECAY
        return 0.0 if name.startswith("past.") else super().decay_of(name, parameter, weight_decay)

    def loss_terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The head's loss; of separate channels one of each window, drawn anew at every step."""
        return super().loss_terms(_one_channel(batch) if self.separate else batch)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query channels numbers"]:
        """The head's output at the query times, in the units of the batch."""
        if not self.separate or batch.values.shape[-1] == 1:
            return self._together(batch, query_times)
        said = self._together(_apart(batch), query_times.repeat_interleave(batch.values.shape[-1], 0))
        return said.squeeze(2).unflatten(0, (-1, batch.values.shape[-1])).transpose(1, 2)

    def _together(self, batch: Batch, query_times: Tensor) -> Float[Tensor, "batch query channels numbers"]:
        level, spread = self._level(batch)
        centred = torch.where(batch.observed, batch.values - level, 0.0)
        end = batch.times.gather(1, (batch.lengths - 1).clamp(min=0)[:, None]) if batch.times.shape[1] else None
        # the window's end is the origin of its clock: what the model learns does not depend on when it is
        start = query_times[:, :1] if end is None else end
        shown = replace(batch, values=centred / spread, times=batch.times - start)
        lead = query_times - start
        said = self.head(self.states(self._dated(shown, batch.times), lead)) * spread.unsqueeze(-1)
        base = level.expand(-1, lead.shape[1], -1)
        if self.past is not None:
            base = base + self.past(replace(shown, values=centred), lead, self._phases(start).squeeze(1))
        if self.head.law == "gaussian":
            return torch.cat([said[..., :1] + base.unsqueeze(-1), said[..., 1:]], dim=-1)
        return said + base.unsqueeze(-1)

    def _dated(self, batch: Batch, times: Float[Tensor, "batch points"]) -> Batch:
        """Append the phases of the rows as channels, given their times on the common clock."""
        if not self.calendar:
            return batch
        phases = self._phases(times) * batch.mask.unsqueeze(-1)
        known = batch.mask.unsqueeze(-1).expand_as(phases)
        return replace(
            batch, values=torch.cat([batch.values, phases], -1), observed=torch.cat([batch.observed, known], -1)
        )

    def _phases(self, times: Float[Tensor, "batch points"]) -> Float[Tensor, "batch points phases"]:
        """Sine and cosine of where each time is in each season."""
        periods = torch.tensor(self.seasons, dtype=times.dtype, device=times.device)
        angle = 2 * math.pi * ((times * self.unit + self.start).unsqueeze(-1) / periods).frac()
        return torch.cat([angle.sin(), angle.cos()], -1).float()

    def _level(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """[B, 1, C] each: what becomes 0, and what becomes 1."""
        if self.normalize == "none":
            zero = batch.values.new_zeros(batch.values.shape[0], 1, batch.values.shape[-1])
            return zero, zero + 1
        count = batch.observed.sum(1, keepdim=True).clamp(min=1)
        mean = batch.values.sum(1, keepdim=True) / count
        variance = (torch.where(batch.observed, batch.values - mean, 0.0)).square().sum(1, keepdim=True) / count
        return mean, (variance + self.smallest_spread**2).sqrt()


def _one_channel(batch: Batch) -> Batch:
    """A random channel of each window, among those with known targets."""
    assert batch.target_values is not None
    assert batch.target_observed is not None
    known = batch.target_observed.any(1)
    chance = torch.rand(known.shape, device=known.device).masked_fill(~known, -1.0)
    channel = chance.argmax(1)[:, None, None]

    def pick(x: Tensor) -> Tensor:
        return x.gather(2, channel.expand(-1, x.shape[1], 1))

    return replace(
        batch,
        values=pick(batch.values),
        observed=pick(batch.observed),
        target_values=pick(batch.target_values),
        target_observed=pick(batch.target_observed),
    )


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
    lead s. With phases ``c_j`` of the seasons at T the weights are ``w(s) + Σ_j c_j w_j(s)``, and so is b. The same
    weights for all channels; they begin with the last value held. ``reach`` is the longest lead it is trained for, in
    scaled time; the intervals go back by 1.
    """

    edges: Tensor

    def __init__(self, intervals: int, reach: float, phases: int = 0, knots: int = 24) -> None:
        super().__init__()
        self.reach, self.knots = reach, knots
        edges = torch.linspace(-1.0, 0.0, intervals + 1, dtype=torch.float64)
        # a last interval of no length is the last value itself
        self.register_buffer("edges", torch.cat([edges, edges[-1:]]), persistent=False)
        # the last column is the bias
        weight = torch.zeros(knots, intervals + 2)
        weight[:, -2] = 1.0
        self.weight = nn.Parameter(weight)
        self.seasonal = nn.Parameter(torch.zeros(phases, knots, intervals + 2)) if phases else None

    def forward(
        self, batch: Batch, lead: Float[Tensor, "batch query"], phases: Float[Tensor, "batch phases"]
    ) -> Float[Tensor, "batch query channels"]:
        filled = fill_channels(batch.values, batch.times, batch.observed)
        if filled.shape[1] == 0:
            return filled.new_zeros(*lead.shape, filled.shape[-1])
        means = window_means(filled, batch.times, batch.lengths, self.edges, torch.zeros_like(lead[:, :1])).squeeze(1)
        means = torch.cat([means, torch.ones_like(means[:, :1])], 1)
        place = (lead / self.reach).clamp(0, 1) * (self.knots - 1)
        low = place.floor().long().clamp(max=self.knots - 2)
        share = (place - low).to(means.dtype).unsqueeze(-1)
        weight = self.weight.expand(means.shape[0], -1, -1)
        if self.seasonal is not None:
            weight = weight + torch.einsum("bp,pki->bki", phases.to(means.dtype), self.seasonal)
        rows = low.unsqueeze(-1).expand(-1, -1, weight.shape[-1])
        return torch.lerp(weight.gather(1, rows), weight.gather(1, rows + 1), share) @ means

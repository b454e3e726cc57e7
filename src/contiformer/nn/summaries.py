"""Summary statistics of each channel, as plain tensor operations: part of a model, so they are exported with it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Numbers that describe a channel.
KINDS = 13


def channel_summaries(
    values: Float[Tensor, "batch points channels"],
    times: Float[Tensor, "batch points"],
    observed: Bool[Tensor, "batch points channels"],
) -> Float[Tensor, "batch channels kinds"]:
    """The statistics of :func:`contiformer.data.summary_statistics`, with zeros where one does not exist.

    log(1 + count), mean, minimum, maximum, first and last value, standard deviation, slope over time, mean over time,
    times of the first and of the last value, time from the last value to the end, and whether the channel was observed.
    Times count from the first point of the series.
    """
    batch, points, channels = values.shape
    if points == 0:
        return values.new_zeros(batch, channels, KINDS)
    present = observed.any(-1)
    clock = times - times.masked_fill(~present, torch.inf).amin(1, keepdim=True)
    clock = torch.where(present, clock, 0.0).to(values.dtype)
    count = observed.sum(1)
    some, divisor = count > 0, count.clamp(min=1).to(values.dtype)

    def mean_of(x: Tensor) -> Tensor:
        return torch.where(observed, x, 0.0).sum(1) / divisor

    place = torch.arange(points, device=values.device).view(1, -1, 1)
    before = torch.where(observed, place, -1).cummax(1).values
    ends = [torch.where(observed, place, points - 1).amin(1, keepdim=True), before[:, -1:].clamp(min=0)]
    wide = clock.unsqueeze(-1).expand_as(values)
    first, last = (values.gather(1, index).squeeze(1) for index in ends)
    first_time, last_time = (wide.gather(1, index).squeeze(1) for index in ends)
    mean = mean_of(values)
    off, late = values - mean.unsqueeze(1), wide - mean_of(wide).unsqueeze(1)
    leverage, extent = mean_of(late.square()), last_time - first_time
    varied = extent > 0
    slope = torch.where(varied, mean_of(off * late) / leverage.where(varied, 1.0), 0.0)
    # trapezoids from the observation before to each observation
    earlier = torch.cat([before.new_full((batch, 1, channels), -1), before[:, :-1]], 1)
    back = earlier.clamp(min=0)
    areas = (wide - wide.gather(1, back)) * (off + off.gather(1, back)) / 2
    area = torch.where(observed & (earlier >= 0), areas, 0.0).sum(1)
    over_time = mean + torch.where(varied, area / extent.where(varied, 1.0), 0.0)
    edge = torch.finfo(values.dtype).max
    least, largest = torch.where(observed, values, edge).amin(1), torch.where(observed, values, -edge).amax(1)
    since = clock.amax(1, keepdim=True) - last_time
    spread = mean_of(off.square()).sqrt()
    numbers = [mean, least, largest, first, last, spread, slope, over_time, first_time, last_time, since]
    told = torch.where(some.unsqueeze(-1), torch.stack(numbers, -1), 0.0)
    counted = torch.log1p(count.to(values.dtype)).unsqueeze(-1)
    return torch.cat([counted, told, some.to(values.dtype).unsqueeze(-1)], dim=-1)

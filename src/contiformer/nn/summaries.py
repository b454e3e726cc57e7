"""A channel in a few numbers, whatever its times."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Numbers that describe a channel.
KINDS = 8


def channel_summaries(
    values: Float[Tensor, "batch points channels"], observed: Bool[Tensor, "batch points channels"]
) -> Float[Tensor, "batch channels kinds"]:
    """Mean, standard deviation, least, largest, first and last observed value, log(1 + count), and whether observed.

    A channel that was never observed has zeros.
    """
    batch, points, channels = values.shape
    if points == 0:
        return values.new_zeros(batch, channels, KINDS)
    count = observed.sum(1)
    some = count > 0
    divisor = count.clamp(min=1).to(values.dtype)
    mean = torch.where(observed, values, 0.0).sum(1) / divisor
    spread = (torch.where(observed, values - mean.unsqueeze(1), 0.0).square().sum(1) / divisor).sqrt()
    edge = torch.finfo(values.dtype).max
    least, largest = torch.where(observed, values, edge).amin(1), torch.where(observed, values, -edge).amax(1)
    place = torch.arange(points, device=values.device).view(1, -1, 1)
    first = torch.where(observed, place, points - 1).amin(1, keepdim=True)
    last = torch.where(observed, place, 0).amax(1, keepdim=True)
    ends = [values.gather(1, index).squeeze(1) for index in (first, last)]
    numbers = torch.stack([mean, spread, least, largest, *ends], dim=-1)
    known = torch.stack([torch.log1p(count.to(values.dtype)), some.to(values.dtype)], dim=-1)
    return torch.cat([torch.where(some.unsqueeze(-1), numbers, 0.0), known], dim=-1)

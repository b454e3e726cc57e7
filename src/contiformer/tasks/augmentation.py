"""Training augmentation: random subsampling, time warping and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.data.batch import Batch
from contiformer.nn.observations import valid_first

#: Points that are never too many to show.
LEAST = 8
#: Of the sum of the amplitudes of a warp: below 1, or time would run backwards.
_STEEPEST = 0.9


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the series at every training step.

    Attributes:
        keep: share of the points, drawn anew at each step.
        most: points at most; None: no limit. What long series cost is bounded by it.
        warp: size of a smooth random change of the clock, see :func:`warped`.
        noise: standard deviation of normal noise on the (scaled) values.

    Example:
        >>> import numpy as np
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import Augmentation
        >>> batch = collate([Series.of(np.arange(40), np.ones((40, 1)))])
        >>> Augmentation(keep=0.5)(batch).lengths.tolist()
        [20]
    """

    keep: float = 1.0
    most: int | None = None
    warp: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1 or (self.most is not None and self.most < 1) or self.warp < 0 or self.noise < 0:
            raise ValueError(
                f"keep must be above 0 and at most 1, most positive, warp and noise not negative, got {self}"
            )

    def __call__(self, batch: Batch) -> Batch:
        seen = thinned(batch, self.keep, self.most)
        if self.warp > 0:
            seen = replace(seen, times=warped(seen.times, self.warp))
        if self.noise > 0:
            noisy = seen.values + self.noise * torch.randn_like(seen.values)
            seen = replace(seen, values=torch.where(seen.observed, noisy, 0.0))
        return seen


def thinned(batch: Batch, keep: float, most: int | None = None) -> Batch:
    """A random share ``keep`` of the points of each series, but no less than 8 and no more than ``most`` of them."""
    points = batch.times.shape[1]
    if points == 0 or (keep >= 1 and (most is None or points <= most)):
        return batch
    count = (batch.lengths * keep).round().long().clamp(min=LEAST)
    count = torch.minimum(count if most is None else count.clamp(max=most), batch.lengths)
    chance = torch.rand(batch.times.shape, device=batch.times.device).masked_fill(~batch.mask, 2.0)
    drawn = chance.argsort(1).argsort(1) < count[:, None]
    order = valid_first(drawn)[:, : max(1, int(count.max()))]
    inside = torch.arange(order.shape[1], device=order.device) < count[:, None]
    # the last point that stays stands for the padding behind it
    order = torch.where(inside, order, order.gather(1, (count[:, None] - 1).clamp(min=0)))

    def pick(x: Tensor) -> Tensor:
        return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

    return replace(
        batch,
        times=batch.times.gather(1, order),
        values=pick(batch.values) * inside.unsqueeze(-1),
        observed=pick(batch.observed) & inside.unsqueeze(-1),
        lengths=count,
    )


def warped(times: Float[Tensor, "batch points"], size: float) -> Float[Tensor, "batch points"]:
    """Times through a random smooth and increasing map, another one for each series.

    With the share u of a series' span, ``u + Σ_k a_k sin(π k u) / (π k)`` for k = 1, 2, 3, the amplitudes normal with
    standard deviation ``size`` and together below 1; then the whole span is stretched by ``exp(size / 2 · N(0, 1))``.
    """
    if times.shape[1] == 0:
        return times
    start = times[:, :1]
    span = (times[:, -1:] - start).clamp(min=torch.finfo(times.dtype).tiny)
    share = ((times - start) / span).clamp(0, 1)
    amplitude = size * torch.randn(len(times), 3, 1, device=times.device).to(times)
    amplitude = amplitude * (_STEEPEST / amplitude.abs().sum(1, keepdim=True).clamp(min=_STEEPEST))
    k = torch.arange(1, 4, device=times.device).view(1, 3, 1).to(times)
    bent = share + (amplitude * torch.sin(math.pi * k * share.unsqueeze(1)) / (math.pi * k)).sum(1)
    stretch = torch.exp(size / 2 * torch.randn(len(times), 1, device=times.device).to(times))
    return start + span * stretch * bent

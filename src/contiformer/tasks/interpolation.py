"""Values of the observed channels at any time: before, between and after the observations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.tasks.at_times import AtTimes
from contiformer.tasks.base import series_weights
from contiformer.tasks.heads import masked_sums
from contiformer.tasks.inputs import Inputs


class Interpolation(AtTimes):
    """Interpolation, trained on a given target series or by hiding observations.

    Args:
        backbone, inputs, options: see :class:`AtTimes`.
        hide: share of the observations that a step hides and asks for, where series have no target.
        stretches: share of the series in which a whole stretch of time is hidden instead of single observations, often
            at the beginning or the end: what teaches to answer in gaps and beyond the data.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import InputOptions, Inputs, Interpolation
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = Interpolation(make_backbone("contiformer", inputs.size, d_model=16), inputs, outputs=1)
        >>> loss, weight = task.loss_terms(collate([Series.of([0, 1, 3], [[1.0], [2.0], [0.0]])]))
    """

    def __init__(
        self, backbone: Backbone, inputs: Inputs, *, hide: float = 0.3, stretches: float = 0.3, **options: Any
    ) -> None:
        super().__init__(backbone, inputs, **options)
        if not 0 < hide < 1 or not 0 <= stretches <= 1:
            raise ValueError(f"hide must be between 0 and 1, and stretches from 0 to 1, got {hide} and {stretches}")
        self.hide, self.stretches = hide, stretches

    def loss_terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The head's loss over the target, or over observations that are hidden here."""
        if batch.target_values is not None:
            return super().loss_terms(batch)
        hidden = self._hidden(batch)
        visible = replace(batch, values=torch.where(hidden, 0.0, batch.values), observed=batch.observed & ~hidden)
        times, values = batch.times, batch.values
        if self.ask is not None and times.shape[1] > self.ask:
            # only where something is hidden, and only so many of those points
            chance = torch.rand(times.shape, device=times.device).masked_fill(~hidden.any(-1), -1.0)
            some = chance.topk(self.ask, dim=1).indices
            times = times.gather(1, some)
            values, hidden = (x.gather(1, some.unsqueeze(-1).expand(-1, -1, x.shape[-1])) for x in (values, hidden))
        said = self(self.augmentation(visible), times)
        return masked_sums(self.head.losses(said, values), hidden, series_weights(batch))

    def _hidden(self, batch: Batch) -> Tensor:
        observed = batch.observed
        each = torch.rand(observed.shape, device=observed.device) < self.hide
        # whole points in half of the series: where all channels are observed together, they are missing together
        rows = torch.rand(observed.shape[:2], device=observed.device) < self.hide
        whole = torch.rand(len(batch), 1, 1, device=observed.device) < 0.5
        hidden = torch.where(whole, rows[..., None], each)
        place = (torch.arange(observed.shape[1], device=observed.device) + 0.5) / batch.lengths.clamp(min=1)[:, None]
        start = torch.rand(len(batch), 1, device=observed.device) * (1 + self.hide) - self.hide
        stretch = (place >= start) & (place < start + self.hide)
        chosen = torch.rand(len(batch), 1, 1, device=observed.device) < self.stretches
        return torch.where(chosen, stretch[..., None], hidden) & observed


def hide_observations(data: SeriesSet, share: float, seed: int) -> SeriesSet:
    """The set with a share of its observations moved to the target, the same for the same seed.

    Half of the series lose single observations, a quarter whole points, and a quarter a stretch of time.
    """
    schema = Schema(**{**vars(data.schema), "targets": data.channels})

    def halved(number: int, series: Series) -> Series:
        draw = np.random.default_rng([seed, number])
        kind = draw.integers(4)
        hidden = draw.random(series.values.shape) < share
        if kind == 2:
            hidden[:] = draw.random((len(series), 1)) < share
        elif kind == 3 and len(series):
            place = (np.arange(len(series)) + 0.5) / len(series)
            start = draw.uniform(-share, 1)
            hidden[:] = ((place >= start) & (place < start + share))[:, None]
        known = np.argwhere(~np.isnan(series.values))
        if len(known) > 1 and not hidden[tuple(known.T)].any():
            hidden[tuple(draw.choice(known))] = True
        seen = np.where(hidden, np.nan, series.values)
        wanted = np.where(hidden, series.values, np.nan)
        kept = (~np.isnan(wanted)).any(1)
        return replace(series, values=seen, target_times=series.times[kept], target_values=wanted[kept])

    return SeriesSet([halved(n, one) for n, one in enumerate(data)], schema=schema, notes=data.notes)

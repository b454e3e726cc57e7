"""Backbone inputs: values, mask, local features and static features."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.nn.frames import FrameEncoder
from contiformer.nn.local_features import fill_channels, time_since_observed, window_means


@dataclass(frozen=True)
class InputOptions:
    """Options of the backbone inputs, the same for every backbone.

    Attributes:
        channels, static: how many there are.
        window: levels of intervals around each point whose means are shown beside its values: 1 is one usual gap to
            each side, and every further level doubles the reach. 0: the values alone, as in the paper.
        spacing: the usual gap, in scaled time.
        gaps: also show how long ago each channel was last observed; for data in which channels are missing.
        causal: intervals before the point only.
        frames: (height, width) when the channels are the pixels of a picture; a small convolutional network reads it.
        frame_features: what that network tells of each picture.

    Example:
        >>> from contiformer.tasks import InputOptions, Inputs
        >>> Inputs(InputOptions(channels=3)).size, Inputs(InputOptions(channels=3, window=2)).size
        (3, 15)
    """

    channels: int
    static: int = 0
    window: int = 0
    spacing: float = 1.0
    gaps: bool = False
    causal: bool = False
    frames: tuple[int, int] | None = None
    frame_features: int = 32

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InputOptions:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        frames = data.get("frames")
        return cls(**{**data, "frames": None if frames is None else tuple(frames)})


class Inputs(nn.Module):
    """Assemble backbone inputs: values, local means, gaps and static features as channels of one batch.

    ``size`` is the number of channels that come out. A mean over an interval counts as observed when its channel was
    observed anywhere in the series.

    Example:
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import InputOptions, Inputs
        >>> inputs = Inputs(InputOptions(channels=1, window=1))
        >>> inputs(collate([Series.of([0, 1], [[1.0], [3.0]])])).values.tolist()
        [[[1.0, 1.0, 2.0], [3.0, 2.0, 3.0]]]
    """

    edges: Tensor

    def __init__(self, options: InputOptions) -> None:
        super().__init__()
        self.options = options
        self.encoder = None
        shown = options.channels
        if options.frames is not None:
            self.encoder = FrameEncoder(*options.frames, options.frame_features)
            shown = options.frame_features
        reach = [2.0**level * options.spacing for level in range(options.window)]
        edges = [-r for r in reversed(reach)] + [0.0] + ([] if options.causal else reach)
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.float64), persistent=False)
        self.size = shown * len(edges) + (options.channels if options.gaps else 0) + options.static

    def forward(self, batch: Batch) -> Batch:
        """The same series as the backbone sees them."""
        values, observed = batch.values, batch.observed
        if self.encoder is not None:
            whole = observed.all(-1, keepdim=True)
            values = self.encoder(values) * whole
            observed = whole.expand_as(values)
        # a row without any observation is padding: means of its neighbours must not make it a point
        present = observed.any(-1, keepdim=True)
        parts, marks = [values], [observed]
        if len(self.edges) > 1:
            filled = fill_channels(values, batch.times, observed, causal=self.options.causal)
            means = window_means(filled, batch.times, batch.lengths, self.edges).flatten(2)
            ever = observed.int().cummax(1).values.bool() if self.options.causal else observed.any(1, keepdim=True)
            known = ever & present
            parts.append(means)
            marks.append(known.repeat(1, 1, len(self.edges) - 1))
        if self.options.gaps:
            # in usual gaps, on a scale on which a day and a minute both fit
            ages = time_since_observed(batch.times, batch.observed) / self.options.spacing
            parts.append(ages.clamp(min=0).log1p().to(values.dtype))
            marks.append(present.expand_as(batch.observed))
        if self.options.static:
            assert batch.static is not None
            assert batch.static_observed is not None
            parts.append(batch.static.unsqueeze(1).expand(-1, values.shape[1], -1))
            marks.append(batch.static_observed.unsqueeze(1) & present)
        if len(parts) == 1:
            return replace(batch, values=values, observed=observed)
        mark = torch.cat(marks, -1)
        return replace(batch, values=torch.where(mark, torch.cat(parts, -1), 0.0), observed=mark)

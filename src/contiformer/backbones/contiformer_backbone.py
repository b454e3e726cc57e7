"""ContiFormer behind the interface of all backbones."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.contiformer import ContiFormer
from contiformer.data.batch import Batch


class ContiFormerBackbone(Backbone):
    """:class:`~contiformer.ContiFormer` on batches; the options are its own.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> ContiFormerBackbone(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "Chen et al., ContiFormer: Continuous-Time Transformer for Irregular Time Series Modeling, NeurIPS 2023"

    def __init__(self, input_size: int, d_model: int = 64, **options: Any) -> None:
        super().__init__()
        self.d_model = d_model
        self.capabilities = Capabilities(causal=bool(options.get("causal", False)))
        self.model = ContiFormer(input_size, d_model, **options)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times; in a causal model rows at one time come one after the other."""
        times = _in_order(batch.times, batch.observed.any(-1)) if self.capabilities.causal else batch.times
        return self.model(batch.values, times, batch.observed, query_times)


@torch.compiler.disable
def _in_order(
    times: Float[Tensor, "batch points"], seen: Bool[Tensor, "batch points"]
) -> Float[Tensor, "batch points"]:
    """Equal times moved apart, to before the time they share, so that a row does not see those after it.

    By at most 1e-10 of the clock for each row, and by no more than half of the gap before them.
    """
    shown = times.masked_fill(~seen, torch.nan)
    same = shown[:, 1:] == shown[:, :-1]
    if not bool(same.any()):
        return times
    count = times.shape[1]
    place = torch.arange(count, device=times.device).expand_as(times)
    first = torch.ones_like(times, dtype=torch.bool)
    first[:, 1:] = ~same
    begin = torch.where(first, place, 0).cummax(1).values
    last = torch.ones_like(first)
    last[:, :-1] = ~same
    end = torch.where(last, place, count).flip(1).cummin(1).values.flip(1)
    before = times.gather(1, (begin - 1).clamp(min=0))
    gap = torch.where(begin > 0, times - before, torch.inf)
    step = torch.minimum(torch.full_like(times, 1e-10), gap / (2 * (end - begin + 1)))
    return times - step * (end - place)

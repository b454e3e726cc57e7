"""From the states of a series to one answer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout
from contiformer.nn.summaries import KINDS, channel_summaries
from contiformer.tasks.inputs import InputOptions
from contiformer.tasks.pooling import Kind, Pooling


class PooledHead(nn.Module):
    """A linear map of the pooled states, and, with ``summaries``, of what each channel is in a few numbers.

    The summaries (:func:`~contiformer.nn.summaries.channel_summaries`) and the static features go through a hidden
    layer of their own: where channels are seldom observed, how often and how high says much by itself.

    Args:
        d_model: width of the states.
        inputs: channels and static features.
        outputs: numbers to tell.
        pooling: see :class:`Pooling`.
        summaries: whether to use them.
        dropout: of the summaries and their hidden layer.
        hidden: width of that layer.
    """

    def __init__(
        self,
        d_model: int,
        inputs: InputOptions,
        outputs: int,
        *,
        pooling: Kind = "learned",
        summaries: bool = False,
        dropout: float = 0.2,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        self.pooling = Pooling(d_model, pooling)
        self.summary = None
        if summaries:
            numbers = KINDS * inputs.channels + 2 * inputs.static
            self.summary = nn.Sequential(Dropout(dropout), nn.Linear(numbers, hidden), nn.GELU(), Dropout(dropout))
        self.out = nn.Linear(self.pooling.size + (hidden if summaries else 0), outputs)

    def forward(
        self, states: Float[Tensor, "batch points d"], shown: Batch, batch: Batch
    ) -> Float[Tensor, "batch outputs"]:
        """The answer from the states at the points of ``shown``, for the series of ``batch``."""
        pooled = self.pooling(states, shown.observed.any(-1))
        if self.summary is None:
            return self.out(pooled).float()
        parts = [channel_summaries(batch.values, batch.observed).flatten(1)]
        if batch.static is not None and batch.static_observed is not None:
            parts += [batch.static, batch.static_observed.to(batch.static.dtype)]
        return self.out(torch.cat([pooled, self.summary(torch.cat(parts, 1)).to(pooled.dtype)], 1)).float()

"""Events as a causal backbone sees them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.data.event_batch import EventBatch
from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.hats import Hats
from contiformer.tasks.events.heads.hazard import knots_of
from contiformer.tasks.events.inputs import EventInput, waits_before

#: Events at one time are told apart by so much of the backbone's clock, in the order they came in.
APART = 1e-9


class EventEncoder(nn.Module):
    """States ``h(t_i)`` after each event: ``x_i = emb(k_i) [+ wait] [+ features]``, and a causal backbone on it.

    The backbone's clock reads 0 at the first event and 1 at the end of the longest training sequence. Its own encoding
    of time comes on top.

    Args:
        backbone: causal, for ``d_model`` channels.
        scaling: of the training sequences.
        waits: also show the wait before each event, by hat functions on its quantiles.
    """

    def __init__(self, backbone: Backbone, scaling: EventScaling, *, waits: bool = True) -> None:
        super().__init__()
        if not backbone.capabilities.causal:
            raise ValueError("events need a causal backbone: the future must not change the past")
        self.backbone, self.span = backbone, scaling.span
        self.input = EventInput(scaling, backbone.d_model)
        self.hats = Hats(knots_of(scaling)) if waits else None
        if self.hats is not None:
            self.wait = nn.Parameter(torch.randn(len(self.hats), backbone.d_model) * 0.5)

    def tokens(self, events: EventBatch) -> Batch:
        """The batch of the backbone: a point for each event, its channels the embedding."""
        x = self.input(events)
        if self.hats is not None:
            x = x + self.hats.of_table(self.wait, waits_before(events, x.dtype))
        x = torch.where(events.mask.unsqueeze(-1), x, 0.0)
        observed = events.mask.unsqueeze(-1).expand_as(x)
        return Batch(times=self.clock(events.times), values=x, observed=observed, lengths=events.lengths)

    def clock(self, times: Float[Tensor, "batch events"]) -> Float[Tensor, "batch events"]:
        """The backbone's time of each event, strictly growing."""
        order = torch.arange(times.shape[1], device=times.device, dtype=times.dtype)
        return times / self.span + APART * order

    def forward(self, events: EventBatch) -> Float[Tensor, "batch events d"]:
        """States after each event."""
        return self.backbone(self.tokens(events))

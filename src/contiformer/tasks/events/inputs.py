"""What recurrent and attentive models of events read: the type, and what else is known of an event."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_batch import EventBatch
from contiformer.data.event_scaling import EventScaling

#: Waits are shown as ``log(1 + wait / _SHORT)``, in mean waits: from 1e-9 to 1e6 they stay of order one to ten.
_SHORT = 0.01


class EventInput(nn.Module):
    """``x_i = E[k_i] + F [features_i, known_i]``, the second part only where the training data have features.

    Shapes: [B, L] events -> [B, L, d_model].
    """

    def __init__(self, scaling: EventScaling, d_model: int) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model must be positive, got {d_model}: use 1 or more")
        self.embedding = nn.Embedding(len(scaling.counts), d_model)
        self.features = nn.Linear(2 * len(scaling.feature_mean), d_model) if scaling.feature_mean else None

    def forward(self, events: EventBatch) -> Float[Tensor, "batch events d"]:
        """An input for each event; that of padding is the one of type 0."""
        x = self.embedding(events.types)
        if self.features is None:
            return x
        assert events.features is not None
        assert events.features_observed is not None
        known = events.features_observed.to(x.dtype)
        return x + self.features(torch.cat([events.features.to(x.dtype) * known, known], -1))


def waits_before(events: EventBatch, dtype: torch.dtype) -> Float[Tensor, "batch events"]:
    """The time since the event before; 0 at the first. Differences are taken before anything is rounded."""
    return events.times.diff(dim=1, prepend=events.times[:, :1]).to(dtype)


def shown_wait(wait: Float[Tensor, "batch events"]) -> Float[Tensor, "batch events"]:
    """``log(1 + wait / 0.01)``."""
    return torch.log1p(wait / _SHORT)

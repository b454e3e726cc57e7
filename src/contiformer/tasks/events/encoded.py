"""A causal encoder with an intensity read from the state at the last event."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_batch import EventBatch
from contiformer.tasks.events.heads.base import IntensityHead
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.memory import Memory


class EncodedModel(IntensityModel):
    """``λ_k(t_i + s) = head(h(t_i), s)`` with the states of an encoder."""

    def __init__(self, encoder: nn.Module, head: IntensityHead) -> None:
        super().__init__()
        self.encoder, self.head, self.num_types = encoder, head, head.num_types

    def remember(self, events: EventBatch) -> Memory:
        """What the head keeps of the states."""
        return Memory(self.head.rows(self.encoder(events), events.times))

    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """The head's."""
        return self.head.rates(memory, elapsed)

    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """The head's."""
        return self.head.log_rates(memory, elapsed)

    def total(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"]:
        """The head's."""
        return self.head.total(memory, elapsed)

    def integral(self, memory: Memory, elapsed: Tensor) -> Float[Tensor, "batch events moments"] | None:
        """The head's."""
        return self.head.integral(memory, elapsed)

    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """The head's."""
        return self.head.bound(memory, low, high)

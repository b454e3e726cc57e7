"""What every model of event sequences is: an intensity after each event, given the history."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.event_batch import EventBatch
from contiformer.tasks.events.memory import Memory


class IntensityModel(nn.Module, ABC):
    """Marked point process with intensities ``λ_k(t_i + s | events up to i)``, in scaled time.

    A subclass says what it remembers after each event, and the intensities from there on, as if nothing happened
    since. Everything else, such as likelihood, prediction and sampling, follows from that.
    """

    num_types: int
    #: Pieces of the wait that prediction integrates over before it looks whether more are needed.
    pieces_at_once: int = 1000

    @property
    def width(self) -> int:
        """Numbers that one moment after one event costs."""
        return self.num_types

    @abstractmethod
    def remember(self, events: EventBatch) -> Memory:
        """A row for each event, which depends on nothing after it; rows of padding may be anything finite."""

    @abstractmethod
    def rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """Intensities of all types, ``elapsed`` after each event."""

    @abstractmethod
    def bound(
        self, memory: Memory, low: Float[Tensor, "batch events"], high: Float[Tensor, "batch events"]
    ) -> Float[Tensor, "batch events"]:
        """A number that the sum of the intensities does not exceed from ``low`` to ``high`` after each event."""

    def log_rates(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments types"]:
        """The logarithm of :meth:`rates`; subclasses avoid the underflow."""
        rates = self.rates(memory, elapsed)
        return rates.clamp(min=torch.finfo(rates.dtype).tiny).log()

    def total(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments"]:
        """The sum of the intensities over all types."""
        return self.rates(memory, elapsed).sum(-1)

    def integral(
        self, memory: Memory, elapsed: Float[Tensor, "batch events moments"]
    ) -> Float[Tensor, "batch events moments"] | None:
        """``∫_0^elapsed λ(t_i + s) ds`` over all types, where there is a closed form."""
        return None

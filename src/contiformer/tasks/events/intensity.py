"""The interface of all event models: intensities after each event, given the history."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contiformer.data.batch import EventBatch, collate_events
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.scaling import EventScaling

#: A number for each event, for moments after each event, and for all types at these moments.
PerEvent = Float[Tensor, "batch events"]
PerMoment = Float[Tensor, "batch events moments"]
PerType = Float[Tensor, "batch events moments types"]


@dataclass(frozen=True)
class Memory:
    """The history up to and including each event, as far as a model keeps it.

    Attributes:
        rows: tensors [B, L, ...], one row for each event.
        whole: data of the whole batch, which do not belong to a row.

    Example:
        >>> import torch
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import build_model
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> memory = model.remember(collate_events(data))
        >>> model.rates(memory.cut(slice(1, 2)), torch.tensor([[[0.0, 0.5]]])).shape
        torch.Size([1, 1, 2, 2])
    """

    rows: dict[str, Tensor]
    whole: Any = None

    def __getitem__(self, name: str) -> Tensor:
        return self.rows[name]

    def take(self, index: Int[Tensor, "batch chosen"]) -> Memory:
        """Other rows in place of these, by their numbers."""
        batch = torch.arange(len(index), device=index.device)[:, None]
        return Memory({name: x[batch, index] for name, x in self.rows.items()}, self.whole)

    def cut(self, which: slice) -> Memory:
        """Some of the rows."""
        return Memory({name: x[:, which] for name, x in self.rows.items()}, self.whole)


class Intensity(nn.Module, ABC):
    """Intensities ``λ_k(t_i + s | memory of the events up to i)`` of all types k, in scaled time.

    They are those from event i on as if nothing happened since. Likelihood, prediction and sampling follow from them.
    A subclass defines :meth:`rates`, :meth:`log_rates` (without underflow), or both.
    """

    num_types: int

    def rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        """Intensities of all types, ``elapsed`` after each event."""
        return self.log_rates(memory, elapsed).exp()

    @abstractmethod
    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """A number that the sum of the intensities does not exceed from ``low`` to ``high`` after each event."""

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        """The logarithm of :meth:`rates`."""
        rates = self.rates(memory, elapsed)
        return rates.clamp(min=torch.finfo(rates.dtype).tiny).log()

    def total(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        """The sum of the intensities over all types."""
        return self.rates(memory, elapsed).sum(-1)

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment | None:
        """``∫_0^elapsed λ(t_i + s) ds`` over all types, where there is a closed form."""
        return None

    def calibrate(self, loss: Callable[[], float]) -> None:
        """Choose what gradient descent does not learn by the loss on validation sequences; nothing by default."""


class IntensityModel(Intensity):
    """A marked temporal point process: an :class:`Intensity` with the memory that it is read from.

    Example:
        >>> import torch
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import build_model
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> memory = model.remember(collate_events(data))
        >>> model.total(memory, torch.zeros(1, 3, 1)).flatten().tolist()
        [1.0, 1.0, 1.0]
    """

    #: Pieces of the wait that prediction integrates over before it looks whether more are needed.
    pieces_at_once: int = 1000

    @property
    def width(self) -> int:
        """Numbers that one moment after one event costs."""
        return self.num_types

    @property
    def longest_span(self) -> float:
        """The longest sequence that can be followed, in durations of the longest training sequence."""
        return math.inf

    def fit_directly(self, training: EventSet) -> bool:
        """Learn by an algorithm of its own instead of gradient steps; False: there is none."""
        return False

    @abstractmethod
    def remember(self, events: EventBatch) -> Memory:
        """A row for each event, which depends on nothing after it; rows of padding may be anything finite."""

    @classmethod
    def build(cls, scaling: EventScaling, options: dict[str, Any]) -> IntensityModel:
        """The model with the options of an estimator, among them d_model, n_layers and dropout."""
        return cls(scaling, **options)

    def stream(self) -> MemoryStream:
        """The memory after one event after the other, equal to that of a pass over the whole sequence."""
        return WholePass(self)


@runtime_checkable
class MemoryStream(Protocol):
    """The memory of a sequence that goes on."""

    def append(self, times: list[float], types: list[int]) -> Memory:
        """The memory [1, 1, ...] after the last of these events, given those before it, which were appended."""


class WholePass:
    """A stream that passes over the whole sequence again with each event."""

    def __init__(self, model: IntensityModel) -> None:
        self.model = model

    def append(self, times: list[float], types: list[int]) -> Memory:
        """The memory after the last event."""
        batch = collate_events([EventSequence(np.array(times), np.array(types))])
        return self.model.remember(batch).take(torch.tensor([[len(times) - 1]]))

"""A causal encoder with an intensity read from the state at the last event."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from contiformer.backbones.base import Stream
from contiformer.data.batch import EventBatch
from contiformer.tasks.events.encoder import APART, EventEncoder
from contiformer.tasks.events.intensities import StateIntensity
from contiformer.tasks.events.intensity import IntensityModel, Memory, MemoryStream, PerEvent, PerMoment, PerType


class LastStateModel(IntensityModel):
    """``λ_k(t_i + s) = head(h(t_i), s)`` with the states of an encoder."""

    def __init__(self, encoder: nn.Module, head: StateIntensity) -> None:
        super().__init__()
        self.encoder, self.head, self.num_types = encoder, head, head.num_types

    @property
    def longest_span(self) -> float:
        return self.encoder.backbone.longest_span if isinstance(self.encoder, EventEncoder) else math.inf

    def stream(self) -> MemoryStream:
        """In time linear in the number of events so far, where the backbone can be told its observations one by one."""
        states = self.encoder.backbone.stream() if isinstance(self.encoder, EventEncoder) else None
        return super().stream() if states is None else StateStream(self, states)

    def remember(self, events: EventBatch) -> Memory:
        return Memory(self.head.rows(self.encoder(events), events.times))

    def rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        return self.head.rates(memory, elapsed)

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        return self.head.log_rates(memory, elapsed)

    def total(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        return self.head.total(memory, elapsed)

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment | None:
        return self.head.integral(memory, elapsed)

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        return self.head.bound(memory, low, high)

    def calibrate(self, loss: Callable[[], float]) -> None:
        self.head.calibrate(loss)


class StateStream:
    """The memory from the stream of a backbone's states."""

    def __init__(self, model: LastStateModel, states: Stream) -> None:
        self.model, self.states = model, states

    def append(self, times: list[float], types: list[int]) -> Memory:
        """The memory after the last event."""
        encoder = self.model.encoder
        assert isinstance(encoder, EventEncoder)
        wait = torch.tensor([times[-2:] if len(times) > 1 else times * 2], dtype=torch.float64)
        pair = EventBatch(wait, torch.tensor([[0, types[-1]]]), torch.ones(1, 2, dtype=torch.bool))
        token = encoder.tokens(pair).values[0, 1]
        state = self.states.append(token, times[-1] / encoder.span + APART * (len(times) - 1))
        return Memory(self.model.head.rows(state[None, None], torch.tensor([[times[-1]]], dtype=torch.float64)))

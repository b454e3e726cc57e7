"""Encoders of events by a causal backbone, and models whose intensity is read from the state at the last event."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Stream, check_positive
from contiformer.data.batch import Batch, EventBatch
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.intensities import StateIntensity
from contiformer.tasks.events.intensity import IntensityModel, Memory, MemoryStream, PerEvent, PerMoment, PerType
from contiformer.tasks.events.piecewise_linear import PiecewiseLinear, wait_knots

#: Events at one time are told apart by so much of the backbone's clock, in the order they came in.
APART = 1e-9


class EventInput(nn.Module):
    """``x_i = E[k_i] + F [features_i, known_i]``, the second part only where the training data have features.

    Shapes: [B, L] events -> [B, L, d_model].
    """

    def __init__(self, scaling: EventScaling, d_model: int) -> None:
        super().__init__()
        check_positive(d_model=d_model)
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


def waits_before(events: EventBatch, dtype: torch.dtype) -> PerEvent:
    """The time since the event before; 0 at the first. Differences are taken before anything is rounded."""
    return events.times.diff(dim=1, prepend=events.times[:, :1]).to(dtype)


class EventEncoder(nn.Module):
    """States ``h(t_i)`` after each event: ``x_i = emb(k_i) [+ wait] [+ features]``, and a causal backbone on it.

    The backbone's clock reads 0 at the first event and 1 at the end of the longest training sequence. Its own encoding
    of time comes on top.

    Args:
        backbone: causal, for ``d_model`` channels.
        waits: also show the wait before each event, as a piecewise linear function on its quantiles.
    """

    def __init__(self, backbone: Backbone, scaling: EventScaling, *, waits: bool = True) -> None:
        super().__init__()
        if not backbone.capabilities.causal:
            raise ValueError("events need a causal backbone: the future must not change the past")
        self.backbone, self.span = backbone, scaling.span
        self.input = EventInput(scaling, backbone.d_model)
        self.waits = PiecewiseLinear(wait_knots(scaling)) if waits else None
        if self.waits is not None:
            self.wait = nn.Parameter(torch.randn(len(self.waits.knots), backbone.d_model) * 0.5)

    def tokens(self, events: EventBatch) -> Batch:
        """The batch of the backbone: a point for each event, its channels the embedding."""
        x = self.input(events)
        if self.waits is not None:
            x = x + self.waits.of_table(self.wait, waits_before(events, x.dtype))
        x = torch.where(events.mask.unsqueeze(-1), x, 0.0)
        observed = events.mask.unsqueeze(-1).expand_as(x)
        return Batch(times=self.clock(events.times), values=x, observed=observed, lengths=events.lengths)

    def clock(self, times: PerEvent) -> PerEvent:
        """The backbone's time of each event, strictly growing."""
        return times / self.span + APART * torch.arange(times.shape[1], device=times.device, dtype=times.dtype)

    def forward(self, events: EventBatch) -> Float[Tensor, "batch events d"]:
        return self.backbone(self.tokens(events))


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

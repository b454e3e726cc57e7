"""A sequence of events that goes on."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from contiformer.backbones.contiformer_backbone import ContiFormerBackbone
from contiformer.backbones.contiformer_stream import ContiFormerStream
from contiformer.data.errors import DataError
from contiformer.data.event_batch import EventBatch, collate_events
from contiformer.data.events import EventSequence
from contiformer.data.times import as_times
from contiformer.estimators.limits import refuse_lasting
from contiformer.tasks.events.encoded import EncodedModel
from contiformer.tasks.events.encoder import APART, EventEncoder
from contiformer.tasks.events.memory import Memory
from contiformer.tasks.events.next_event import expect, quantile

if TYPE_CHECKING:
    from contiformer.estimators.event_predictor import EventPredictor


class _History(Protocol):
    """What is kept between events."""

    def append(self, times: list[float], types: list[int]) -> Memory:
        """The memory [1, 1, ...] after the last of these events, given those before it."""
        ...


class _Incremental:
    """Of a causal ContiFormer: the trajectories of past events do not change, and are only followed further."""

    def __init__(self, model: EncodedModel, encoder: EventEncoder, inner: ContiFormerBackbone) -> None:
        self.model, self.encoder, self.states = model, encoder, ContiFormerStream(inner.model)

    def append(self, times: list[float], types: list[int]) -> Memory:
        wait = torch.tensor([times[-2:] if len(times) > 1 else times * 2], dtype=torch.float64)
        pair = EventBatch(wait, torch.tensor([[0, types[-1]]]), torch.ones(1, 2, dtype=torch.bool))
        token = self.encoder.tokens(pair).values[0, 1]
        state = self.states.append(token, times[-1] / self.encoder.span + APART * (len(times) - 1))
        now = torch.tensor([[times[-1]]], dtype=torch.float64)
        return Memory(self.model.head.rows(state[None, None], now))


class _Whole:
    """Of any other model: a new pass over the whole history with each event."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def append(self, times: list[float], types: list[int]) -> Memory:
        batch = collate_events([EventSequence(np.array(times), np.array(types))])
        return self.model.remember(batch).take(torch.tensor([[len(times) - 1]]))


class EventStream:
    """Events one after the other, and answers in between; equal to what the whole sequence would give.

    With a causal contiformer and an intensity that is read from the last event, an event costs O(history). Other models
    look at the whole history again.

    Example:
        >>> from contiformer import EventPredictor
        >>> model = EventPredictor(max_epochs=1, min_steps=1, verbose=0).fit([([0.0, 1, 2, 4], [0, 1, 0, 1])] * 4)
        >>> stream = model.stream()
        >>> stream.append(0.0, 0)
        >>> stream.append(1.5, 1)
        >>> stream.intensity(2.0).shape
        (2,)
    """

    def __init__(self, predictor: EventPredictor) -> None:
        if predictor.scaling_.feature_mean:
            raise ValueError("a model with features of events cannot be streamed yet: pass whole sequences")
        # not the predictor itself: what a later fit changes there does not belong to this model
        self.scaling, self.type_names = predictor.scaling_, predictor.type_names_
        task = predictor.tasks_[0]
        # one event at a time is no work for a GPU, and the predictor's own model stays where it is
        self.model = (task.model if task.device.type == "cpu" else deepcopy(task.model).cpu()).eval()
        self._followed = predictor.config_["backbone"] == "contiformer"
        self._history = _history_of(self.model)
        self._times: list[float] = []
        self._types: list[int] = []
        self._start = 0.0
        self._memory: Memory | None = None

    def __len__(self) -> int:
        """The number of events so far."""
        return len(self._times)

    @torch.no_grad()
    def append(self, time: Any, type: Any = 0) -> None:
        """One more event, not before the last one.

        Args:
            time: in the data's unit, or a date where the model was trained on dates.
            type: a name of a type, or its number.
        """
        stamp, kind = float(as_times([time])[0]), self._number(type)
        if not self._times:
            self._start = stamp
        scaled = (stamp - self._start) / self.scaling.unit
        if self._times and scaled < self._times[-1]:
            raise DataError(f"an event at {time} after a later one", remedy="append events in the order of time")
        if self._followed:
            refuse_lasting(scaled / self.scaling.span, "the stream")
        memory = self._history.append([*self._times, scaled], [*self._types, kind])
        self._times.append(scaled)
        self._types.append(kind)
        self._memory = memory

    @torch.no_grad()
    def intensity(self, time: Any) -> NDArray[np.float64]:
        """[K] or [T, K] for several times, per unit of the data's time, given all events so far."""
        one = np.ndim(time) == 0
        rates = self.model.rates(self._now(), self._elapsed([time] if one else time))[0, 0]
        found = rates.double().numpy() / self.scaling.unit
        return found[0] if one else found

    @torch.no_grad()
    def predict_next(self) -> dict[str, Any]:
        """When the next event is expected, its median time, its likeliest type, and the probabilities of all."""
        memory = self._now()
        said = expect(self.model, memory)
        unit, last = self.scaling.unit, self._start + self._times[-1] * self.scaling.unit
        shares = said.kinds[0, 0].double().numpy()
        return {
            "expected_time": last + unit * float(said.mean),
            "median_time": last + unit * float(quantile(self.model, memory)),
            "type": self.type_names[int(shares.argmax())],
            "probability": float(shares.max()),
            "probabilities": dict(zip(self.type_names, shares.tolist(), strict=True)),
        }

    def _now(self) -> Memory:
        if self._memory is None:
            raise DataError("nothing has happened yet", remedy="append an event first")
        return self._memory

    def _elapsed(self, times: ArrayLike) -> Tensor:
        scaled = (as_times(times) - self._start) / self.scaling.unit - self._times[-1]
        if (scaled < 0).any():
            raise DataError("a time before the last event", remedy="ask for times from the last event on")
        return torch.as_tensor(scaled, dtype=next(self.model.parameters()).dtype)[None, None]

    def _number(self, kind: Any) -> int:
        names = self.type_names
        # by name first: types 1, 2, 3 of a table are called so, and are not numbered so
        if str(kind) in names:
            return names.index(str(kind))
        if isinstance(kind, int | np.integer) and 0 <= kind < len(names) and not any(map(str.isdigit, names)):
            return int(kind)
        raise DataError(f"there is no type {kind!r}", remedy=f"the model knows {', '.join(names[:8])}")


def _history_of(model: Any) -> _History:
    if isinstance(model, EncodedModel) and isinstance(model.encoder, EventEncoder):
        inner = model.encoder.backbone
        if isinstance(inner, ContiFormerBackbone) and ContiFormerStream.suits(inner.model):
            return _Incremental(model, model.encoder, inner)
    return _Whole(model)

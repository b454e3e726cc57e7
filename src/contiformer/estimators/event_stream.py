"""Event by event: streaming prediction, and one-step-ahead predictions for whole sequences."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from contiformer.data.conversion import shown_times
from contiformer.data.errors import DataError
from contiformer.estimators.event_tables import wait_of
from contiformer.estimators.input_checks import refuse_lasting
from contiformer.estimators.tables import asked_times
from contiformer.tasks.events.intensity import Memory
from contiformer.tasks.events.likelihood import intervals
from contiformer.tasks.events.next_event import chance_within, expect, quantile

if TYPE_CHECKING:
    from contiformer.estimators.event_predictor import EventPredictor


class EventStream:
    """Events one after the other, and answers in between; equal to what the whole sequence would give.

    An event costs O(history) where the model can be told its events one by one, such as a causal contiformer with an
    intensity read from the last event. Other models pass over the whole history again.

    Example:
        >>> from contiformer import EventPredictor, TrainingOptions
        >>> quick = TrainingOptions(max_epochs=1, verbose=0)
        >>> model = EventPredictor(training=quick).fit([([0.0, 1, 2, 4], [0, 1, 0, 1])] * 4)
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
        self.scaling, self.type_names, self.kind = predictor.scaling_, predictor.type_names_, predictor.time_kind_
        task = predictor.tasks_[0]
        # one event at a time is no work for a GPU, and the predictor's own model stays where it is
        self.model = (task.model if task.device.type == "cpu" else deepcopy(task.model).cpu()).eval()
        self._history = self.model.stream()
        self._times: list[float] = []
        self._types: list[int] = []
        self._start = 0.0
        self._memory: Memory | None = None

    def __len__(self) -> int:
        """The number of events so far."""
        return len(self._times)

    @torch.no_grad()
    def append(self, time: Any, type: Any = 0) -> None:
        """One more event, not before the last one; ``type`` is the name of its type or its number.

        The time is a date where the model was trained on dates.
        """
        stamp, kind = float(self._moments([time])[0]), self._number(type)
        if not self._times:
            self._start = stamp
        scaled = (stamp - self._start) / self.scaling.unit
        if self._times and scaled < self._times[-1]:
            raise DataError(f"an event at {time} after a later one", remedy="append events in the order of time")
        refuse_lasting(scaled / self.scaling.span, self.model.longest_span, "the stream")
        times, types = [*self._times, scaled], [*self._types, kind]
        self._memory = self._history.append(times, types)
        self._times, self._types = times, types

    @torch.no_grad()
    def intensity(self, time: Any) -> NDArray[np.float64]:
        """[K] or [T, K] for several times, per unit of the data's time, given all events so far."""
        one = np.ndim(time) == 0
        rates = self.model.rates(self._now(), self._elapsed([time] if one else time))[0, 0]
        found = rates.double().numpy() / self.scaling.unit
        return found[0] if one else found

    @torch.no_grad()
    def predict_next(self, *, within: Any = None) -> dict[str, Any]:
        """When the next event is expected, its median time, its likeliest type, and the probabilities of all.

        Times are dates where the model was trained on dates (None where an event never comes). With ``within``, a time
        or duration after the last event, "within" is the probability that the next one has come by then.
        """
        memory = self._now()
        said = expect(self.model, memory)
        unit, last = self.scaling.unit, self._start + self._times[-1] * self.scaling.unit
        shares = said.kinds[0, 0].double().numpy()
        soon = {}
        if within is not None:
            soon["within"] = float(chance_within(self.model, memory, wait_of(within, self.kind) / unit))
        return soon | {
            "expected_time": self._shown(last + unit * float(said.mean)),
            "median_time": self._shown(last + unit * float(quantile(self.model, memory))),
            "type": self.type_names[int(shares.argmax())],
            "probability": float(shares.max()),
            "probabilities": dict(zip(self.type_names, shares.tolist(), strict=True)),
        }

    def _moments(self, times: Any) -> NDArray[np.float64]:
        return asked_times(times, "time", self.kind)

    def _shown(self, time: float) -> Any:
        return shown_times(np.array([time]), self.kind).tolist()[0]

    def _now(self) -> Memory:
        if self._memory is None:
            raise DataError("the stream has no events yet", remedy="append an event first")
        return self._memory

    def _elapsed(self, times: ArrayLike) -> Tensor:
        scaled = (self._moments(times) - self._start) / self.scaling.unit - self._times[-1]
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


class OneStepAhead(NamedTuple):
    """True and expected waits in the data's unit, and true and predicted types, of all events but the first."""

    wait: Float64[np.ndarray, " events"]
    expected: Float64[np.ndarray, " events"]
    type: Int64[np.ndarray, " events"]
    predicted: Int64[np.ndarray, " events"]


@torch.no_grad()
def one_step_ahead(predictor: EventPredictor, X: Any) -> OneStepAhead:
    """Predict each event of the sequences from the events before it.

    Example:
        >>> from contiformer import EventPredictor
        >>> from contiformer.estimators.event_stream import one_step_ahead
        >>> X = [([0.0, 1.0, 2.0, 3.5], [0, 1, 0, 1])] * 4
        >>> one_step_ahead(EventPredictor(backbone="hp").fit(X), X[:1]).wait.round(3).tolist()
        [1.0, 1.0, 1.5]
    """
    parts = []
    for batch in predictor._batches(predictor._read(X).data):
        scored = intervals(predictor._model, batch)
        if scored.wait.shape[1]:
            said = expect(predictor._model, scored.memory)
            columns = (scored.wait, said.mean, scored.kind, said.kinds.argmax(-1))
            parts.append([x[scored.known].cpu().numpy() for x in columns])
    wait, expected, kind, best = (np.concatenate(x) for x in zip(*parts, strict=True)) if parts else [np.zeros(0)] * 4
    unit = predictor.scaling_.unit
    waits = (unit * wait.astype(np.float64), unit * expected.astype(np.float64))
    return OneStepAhead(*waits, kind.astype(int), best.astype(int))

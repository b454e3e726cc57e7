"""Explanations of event predictors: events of the history are left out one at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from contiformer.data.conversion import DATES
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.estimators.event_tables import event_table
from contiformer.estimators.explain import one_of, parts_of
from contiformer.estimators.explanation import Explanation
from contiformer.estimators.tables import TABLES, names_of, query_times
from contiformer.estimators.values import each_its_own, one_time
from contiformer.tasks.events.likelihood import intervals, log_likelihood

if TYPE_CHECKING:
    from contiformer.estimators.event_predictor import EventPredictor


@torch.no_grad()
def explain_events(
    estimator: EventPredictor, X: Any, method: str, *, target: Any, at: Any, most_parts: int
) -> Explanation:
    """See :meth:`contiformer.EventPredictor.explain`."""
    if method != "occlusion":
        raise ValueError(f"method must be 'occlusion' for events, which are there or not, got {method!r}")
    if most_parts < 1:
        raise ValueError(f"most_parts must be 1 or more, got {most_parts}")
    if at is None and target is not None:
        raise ValueError("target is the type of an intensity: pass at=, the time of it, as well")
    given = estimator._read(X)
    data, names, types = given.data, names_of(given.data), estimator.type_names_
    chosen, kind = one_of(types, target, "type") if target is not None else (None, None)
    form: Any = given.form
    times: list[float] | None = None
    if at is not None:
        every: Any = data
        given_at = each_its_own(at, len(data))
        asked = query_times(given_at, every, form, estimator.columns_, estimator.time_kind_)
        times = [float(one[0]) for one in one_time(asked)]
    parts, by_type, answers, sizes, cost = [], [], [], [], 0
    asked_at: list[float | None] = [*times] if times is not None else [None] * len(data)
    lengths = [_history(one, name, when) for name, one, when in zip(names, data, asked_at, strict=True)]
    for n, (one, count) in enumerate(zip(data, lengths, strict=True)):
        shown = np.zeros((count, len(types)), bool)
        shown[np.arange(count), one.types[:count]] = True
        number, size = parts_of(np.ones((count, 1), bool), "observation", min(most_parts, count))
        left = [np.ones(count, bool), *(number[:, 0] != k for k in range(int(number.max()) + 1))]
        present = np.flatnonzero(shown.any(0) & ~shown.all(0))
        left += [~shown[:, k] for k in present]
        # the event that is explained stays
        last = [] if times is not None else [count]
        copies = [one.events(np.append(np.flatnonzero(keep), last).astype(int)) for keep in left]
        said = _answers(estimator, EventSet(copies, type_names=types), asked_at[n], kind)
        change = said[0] - said[1 : len(left) - len(present)]
        alike = np.bincount(number[:, 0], minlength=len(change))
        found = np.where(shown, (change / alike)[number], np.nan)
        whole = np.full(len(types), np.nan)
        whole[present] = said[0] - said[len(left) - len(present) :]
        whole[~shown.any(0)] = 0.0
        parts.append(found)
        by_type.append(whole)
        answers.append(said[0])
        sizes.append(size)
        cost += len(left)
    columns = estimator.columns_
    time = columns.time or "time"
    unit = "log-likelihood of the last event, in nats"
    if times is not None:
        unit = "log intensity of " + ("all types" if target is None else repr(chosen))
    wide = f"windows of up to {max(sizes, default=1)} consecutive events were left out together"
    histories = [one.events(slice(0, count)) for one, count in zip(data, lengths, strict=True)]

    def frame(table: dict[str, Any]) -> Any:
        timed = time in table
        return event_table(given if timed else replace(given, zone=None), table, (time,) if timed else ())

    return Explanation(
        method="occlusion",
        unit=unit,
        ids=names,
        points=[one.times for one in histories],
        values=[np.where(np.isnan(found), np.nan, 1.0) for found in parts],
        attributions=parts,
        channel_names=tuple(types),
        channel_attributions=np.array(by_type).reshape(len(names), len(types)),
        answers=np.array(answers),
        targets=[types[one.types[-1]] if target is None else chosen for one in data],
        at=[float(one.times[-1]) for one in data] if times is None else times,
        evaluations=cost,
        notes=(f"{wide} and share the change equally",) if max(sizes, default=1) > 1 else (),
        dates=estimator.time_kind_ in DATES,
        events=True,
        names=(columns.id if given.form in TABLES else columns.id or "id", time, columns.type or "type"),
        frame=frame,
    )


def _history(one: EventSequence, name: Any, at: float | None) -> int:
    """The number of events before the explained time, or before the last event."""
    count = len(one) - 1 if at is None else int(np.searchsorted(one.times, at))
    if count < 2:
        before = "its last event" if at is None else f"{at:g}"
        problem = f"sequence {name!r} has {max(count, 0)} events before {before}"
        raise DataError(problem, remedy="two are needed, so that one can be left out")
    return count


def _answers(estimator: Any, copies: EventSet, at: float | None, kind: int | None) -> NDArray[np.float64]:
    """Log-likelihood of the last event of each copy; or the log intensity at a time, of one type or of all."""
    model, unit = estimator._model, estimator.scaling_.unit
    said, first = [], 0
    for batch in estimator._batches(copies):
        last = batch.lengths[:, None] - 1
        if at is None:
            found = log_likelihood(model, intervals(model, batch)).gather(1, last - 1).squeeze(1)
        else:
            ends = np.array([copies[first + n].times[-1] for n in range(len(batch))])
            elapsed = torch.as_tensor((at - ends) / unit, device=batch.times.device)[:, None, None]
            memory = model.remember(batch).take(last)
            rates = model.log_rates(memory, elapsed.to(next(model.parameters()).dtype)).flatten(1)
            found = rates.logsumexp(1) if kind is None else rates[:, kind]
        said.append(found.double().cpu() - math.log(unit))
        first += len(batch)
    return torch.cat(said).numpy()

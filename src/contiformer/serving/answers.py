"""Answers of an estimator to a question about series, ready for JSON."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contiformer.data.conversion import TimeKind, as_clock, shown_times
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.estimators.event_tables import Events


@dataclass(frozen=True)
class Question:
    """The question to every series; requests with equal questions go into one batch.

    Attributes:
        about: "series": each as a whole (or at its own times, or over the horizon); "times": at the times of each item.
        quantiles: levels; None: the bands that the model has.
    """

    about: Literal["series", "times"]
    quantiles: tuple[float, ...] | None = None


class Item(NamedTuple):
    """A series or sequence, and the times to answer for."""

    series: Any
    times: NDArray[np.float64] | None = None


def kind_of_times(estimator: Any) -> TimeKind:
    """Kind of the times in the training data."""
    kind: TimeKind = estimator.time_kind_ if estimator.task_name == "events" else estimator.schema_.kind
    return kind


def schema_of_inputs(estimator: Any) -> Schema:
    """The description of the training data without its answers."""
    return replace(estimator.schema_, classes=None, targets=())


def bands_of(estimator: Any) -> Literal["std", "quantiles"] | None:
    """The form of uncertainty that a model gives with values."""
    law = getattr(estimator, "law", None)
    return "std" if law == "gaussian" else "quantiles" if law == "quantiles" else None


def answers(estimator: Any, question: Question, items: Sequence[Item]) -> list[dict[str, Any]]:
    """An answer for each item, by the public methods of the estimator."""
    if estimator.task_name == "events":
        return (_next_events if question.about == "series" else _intensities)(estimator, items)
    data = SeriesSet([item.series for item in items], schema=schema_of_inputs(estimator))
    if estimator._per_series:
        return _whole(estimator, data) if question.about == "series" else _unfolding(estimator, items)
    return _curves(estimator, question, data, items)


def finite(values: NDArray[Any]) -> list[float | None]:
    """Numbers for JSON: null where there is none."""
    return [x if math.isfinite(x) else None for x in values.tolist()]


def shown(times: NDArray[np.float64], kind: TimeKind) -> list[Any]:
    """Times for JSON: numbers, dates in ISO 8601, or hh:mm:ss; null where one never comes.

    Example:
        >>> import numpy as np
        >>> from contiformer.serving.answers import shown
        >>> shown(np.array([0.0, 90.5]), "dates"), shown(np.array([90.0]), "durations")
        (['1970-01-01T00:00:00', '1970-01-01T00:01:30.500000'], ['00:01:30'])
    """
    return [as_text(time) for time in shown_times(times, kind).tolist()]


def as_text(time: Any) -> Any:
    """One time for JSON."""
    if isinstance(time, dt.datetime):
        return time.isoformat()
    if isinstance(time, dt.timedelta):
        return as_clock(time)
    return time if time is not None and math.isfinite(time) else None


def _by_class(estimator: Any, probability: NDArray[np.float64]) -> tuple[list[str], list[Any]]:
    classes = estimator.classes_.tolist()
    return list(map(str, classes)), [classes[k] for k in probability.argmax(1)]


def _whole(estimator: Any, data: SeriesSet) -> list[dict[str, Any]]:
    """One class or number for each series."""
    if estimator.task_name == "regression":
        return [{"value": value} for value in finite(estimator.predict(data))]
    probability = estimator.predict_proba(data)
    names, best = _by_class(estimator, probability)
    rows = zip(best, probability, strict=True)
    return [{"label": label, "probabilities": dict(zip(names, finite(row)))} for label, row in rows]


def lengths_of_parts(item: Item) -> list[int]:
    """Numbers of points of the different parts of a series that end at the times asked for."""
    assert item.times is not None
    return sorted({count for count in _points_until(item.series, item.times) if count})


def _points_until(series: Series, times: NDArray[np.float64]) -> list[int]:
    counts: list[int] = np.searchsorted(series.times, times, side="right").tolist()
    return counts


def _unfolding(estimator: Any, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The answer of a model of whole series for the observations until each time: each such part is computed once."""
    parts: list[Series] = []
    places: list[list[int]] = []
    for series, times in items:
        assert times is not None
        known = {count: len(parts) + n for n, count in enumerate(lengths_of_parts(Item(series, times)))}
        parts += [series.points(slice(count)) for count in known]
        places.append([known.get(count, -1) for count in _points_until(series, times)])
    said = _whole(estimator, SeriesSet(parts, schema=schema_of_inputs(estimator))) if parts else []
    kind = kind_of_times(estimator)
    found = []
    for item, at in zip(items, places, strict=True):
        assert item.times is not None
        rows = [said[n] if n >= 0 else None for n in at]
        answer: dict[str, Any] = {"times": shown(item.times, kind)}
        if estimator.task_name == "regression":
            answer["value"] = [row and row["value"] for row in rows]
        else:
            answer["labels"] = [row and row["label"] for row in rows]
            names = list(map(str, estimator.classes_.tolist()))
            answer["probabilities"] = {name: [row and row["probabilities"][name] for row in rows] for name in names}
        found.append(answer)
    return found


def _curves(estimator: Any, question: Question, data: SeriesSet, items: Sequence[Item]) -> list[dict[str, Any]]:
    at = None if question.about == "series" else [item.times for item in items]
    bands, levels = bands_of(estimator), question.quantiles
    if levels is not None and estimator.task_name == "regression":
        raise DataError("a regressor has no quantiles", remedy="leave quantiles out")
    if levels is None and bands == "quantiles":
        levels = tuple(estimator.quantiles)
    std = None
    if levels is None and bands == "std":
        mean, std = estimator.predict(data, at=at, return_std=True)
    else:
        mean = estimator.predict(data, at=at)
    spread = None if levels is None else estimator.predict(data, at=at, quantiles=list(levels))
    kind, outputs = kind_of_times(estimator), mean.channels
    found = []
    for n, one in enumerate(mean):
        answer = {"times": shown(one.times, kind), "values": _columns(one.values, outputs)}
        if std is not None:
            answer["std"] = _columns(std[n].values, outputs)
        if spread is not None and levels is not None:
            # [Q, channels x levels], the levels of a channel side by side
            by_level = spread[n].values.reshape(len(one), len(outputs), len(levels))
            answer["quantiles"] = {f"{x:g}": _columns(by_level[..., k], outputs) for k, x in enumerate(levels)}
        found.append(answer)
    return found


def _columns(values: NDArray[Any], names: Iterable[str]) -> dict[str, list[float | None]]:
    return {name: finite(values[:, n]) for n, name in enumerate(names)}


def _events(estimator: Any, sequences: list[EventSequence]) -> Events:
    return Events(EventSet(sequences, type_names=estimator.type_names_), "set", estimator.time_kind_)


def _next_events(estimator: Any, items: Sequence[Item]) -> list[dict[str, Any]]:
    table = estimator.predict_next(_events(estimator, [item.series for item in items]), probabilities=True)
    found = []
    for row in table.iter_rows(named=True):
        times = {name: as_text(row[name]) for name in ("last_time", "expected_time", "median_time")}
        shares = {name: row[f"probability_{name}"] for name in estimator.type_names_}
        found.append({**times, "type": row["type"], "probability": row["probability"], "probabilities": shares})
    return found


def _intensities(estimator: Any, items: Sequence[Item]) -> list[dict[str, Any]]:
    found = []
    for sequence, times in items:
        assert times is not None
        rates = estimator.intensity_at(_events(estimator, [sequence]), times)
        curves = _columns(rates, estimator.type_names_)
        found.append({"times": shown(times, kind_of_times(estimator)), "intensities": curves})
    return found

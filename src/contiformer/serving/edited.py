"""Answers of a model for one series or event sequence that is edited on the explorer page.

Times are numbers here, of dates the seconds since 1970; the page shows them as the data have them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from contiformer.backbones.base import Backbone
from contiformer.data.conversion import DATES
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Points of a curve, and of one with many channels.
CURVE, SHORT_CURVE, MANY = 240, 120, 12
#: Prefixes of a series for which a classifier or regressor is asked, at most.
PREFIXES = 48
#: Times of an intensity.
INTENSITY = 480
#: Parts that are hidden one after the other for an attribution.
MOST_PARTS = 256
_LEVELS = (0.05, 0.5, 0.95)
_NORMAL_95 = 1.6448536269514722
#: Integrated intensity after which an event has almost surely come, and mean waits after which it may never come.
_SURE, _LONGEST = 7.0, 1e5
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Edited(BaseModel):
    """A series as the page has it.

    Attributes:
        times: of its rows.
        points: (row, channel, value) of every observation.
        static: features, None where unknown.
        until: the model is shown the rows up to this time; None: all.
        start, end: ends of the curve, where the answer is one.
    """

    model_config = ConfigDict(extra="forbid")

    times: list[Finite] = Field(default_factory=list, max_length=10_000)
    points: list[tuple[int, int, Finite]] = Field(default_factory=list, max_length=200_000)
    static: list[Finite | None] = Field(default_factory=list, max_length=10_000)
    until: Finite | None = None
    start: Finite | None = None
    end: Finite | None = None


class EditedEvents(BaseModel):
    """An event sequence as the page has it: times, numbers of types and features of the events, and a causal view.

    Intensities reach to ``end`` or beyond the next event; with a ``start`` they are those between the two.
    """

    model_config = ConfigDict(extra="forbid")

    times: list[Finite] = Field(default_factory=list, max_length=10_000)
    types: list[int] = Field(default_factory=list, max_length=10_000)
    features: list[list[Finite | None]] | None = None
    until: Finite | None = None
    start: Finite | None = None
    end: Finite | None = None


def series_of(estimator: Any, edited: Edited) -> SeriesSet:
    """A set of the one series that the model is shown.

    Raises:
        DataError: naming the observation or feature that does not fit.
    """
    schema = estimator.schema_
    values = np.full((len(edited.times), len(schema.channels)), np.nan)
    for row, channel, value in edited.points:
        if not (0 <= row < values.shape[0] and 0 <= channel < values.shape[1]):
            problem = f"an observation is in row {row} and channel {channel}"
            raise DataError(problem, remedy=f"there are {values.shape[0]} rows and {values.shape[1]} channels")
        values[row, channel] = value
    static = None
    if schema.static:
        if len(edited.static) != len(schema.static):
            remedy = f"give {', '.join(schema.static)}, null where unknown"
            raise DataError(f"{len(edited.static)} static features for {len(schema.static)}", remedy=remedy)
        static = np.array([np.nan if x is None else x for x in edited.static])
    one = Series.of(edited.times, values, static=static, id="edited")
    if edited.until is not None:
        one = one.points(one.times <= edited.until)
    return SeriesSet([one], schema=replace(schema, classes=None, targets=()))


def answer_series(estimator: Any, edited: Edited) -> dict[str, Any]:
    """The answer for a series, with a curve over time where the task has one."""
    shown = series_of(estimator, edited)
    task = estimator.task_name
    known = bool(shown[0].observed.any())
    if not known:
        return {"known": False}
    if task == "classification":
        return {"known": True, "probabilities": rounded(estimator.predict_proba(shown)[0])}
    if estimator._per_series:
        return {"known": True, "value": float(estimator.predict(shown)[0])}
    return {"known": True, "curve": _curve(estimator, shown, edited)}


def answers_over_time(estimator: Any, edited: Edited) -> dict[str, Any]:
    """The answer of a classifier or regressor as a function of the time up to which the series is known."""
    one = series_of(estimator, edited.model_copy(update={"until": None}))
    seen = one[0].times[one[0].observed.any(1)]
    times = np.unique(seen)
    if len(times) > PREFIXES:
        times = times[np.unique(np.linspace(0, len(times) - 1, PREFIXES).round().astype(int))]
    if not len(times):
        return {"times": [], "answers": []}
    prefixes = SeriesSet([one[0].points(one[0].times <= t) for t in times], schema=one.schema)
    if estimator.task_name == "classification":
        answers = estimator.predict_proba(prefixes).T
    else:
        answers = estimator.predict(prefixes)[None]
    return {"times": times.tolist(), "answers": rounded(answers)}


def _curve(estimator: Any, shown: SeriesSet, edited: Edited) -> dict[str, Any]:
    """Median (or mean) and 90 % band of every output at times of the view, or at the steps of the horizon."""
    outputs = estimator._outputs
    one = shown[0]
    if estimator.task_name == "forecasting":
        at = one.times[-1] + estimator.step_ * np.arange(1, estimator.horizon + 1)
    else:
        start = one.times[0] if edited.start is None else edited.start
        end = one.times[-1] if edited.end is None else edited.end
        if not end > start:
            start, end = start - 0.5, start + 0.5
        at = np.linspace(start, end, CURVE if len(outputs) <= MANY else SHORT_CURVE)
    low = high = None
    if estimator.law == "point":
        middle = estimator.predict(shown, at=[at])[0].values
    elif estimator.task_name == "regression":
        mean, std = (found[0].values for found in estimator.predict(shown, at=[at], return_std=True))
        low, middle, high = mean - _NORMAL_95 * std, mean, mean + _NORMAL_95 * std
    else:
        levels = _LEVELS if estimator.law == "gaussian" else (estimator.quantiles[0], 0.5, estimator.quantiles[-1])
        found = estimator.predict(shown, at=[at], quantiles=levels)[0].values
        low, middle, high = (found[:, n::3] for n in range(3))
    return {
        "times": at.tolist(),
        "middle": rounded(middle.T),
        "low": None if low is None else rounded(low.T),
        "high": None if high is None else rounded(high.T),
        "band": band_of(estimator),
    }


def band_of(estimator: Any) -> str | None:
    """The name of the band around a curve, as in "90 % interval"; None where there is none."""
    if getattr(estimator, "law", "point") == "point":
        return None
    share = 0.9 if estimator.law == "gaussian" else estimator.quantiles[-1] - estimator.quantiles[0]
    return f"{100 * share:.3g} % interval"


def layers_of(estimator: Any) -> list[str]:
    """Layers that the page can show: attributions for every model, attention where the backbone has weights."""
    backbone = getattr(estimator.tasks_[0], "backbone", None)
    attends = backbone is not None and type(backbone).attention_weights is not Backbone.attention_weights
    return ["attribution", *(["attention"] if attends and estimator.task_name not in ("forecasting", "events") else [])]


def layer(
    estimator: Any, edited: Edited, name: str, at: float | None, target: int | None, parts: int = MOST_PARTS
) -> dict[str, Any]:
    """Weights of the observations in an answer: attributions [N][C] by occlusion, or attention [N][1].

    Args:
        estimator: of series.
        edited: the series.
        name: "attribution" or "attention".
        at: the time that is asked about, where answers have one; None: the last time.
        target: position of the class or output that is explained; None: the class that is predicted.
        parts: that are hidden one after the other for an attribution, at most.
    """
    shown = series_of(estimator, edited)
    if not shown[0].observed.any():
        return {"weights": [], "unit": "", "signed": False, "notes": []}
    when = [[float(shown[0].times[-1]) if at is None else at]]
    if name == "attention":
        found = estimator.explain(shown, "attention", at=when)
        weights = found.weights[0].mean((0, 1))[:, None]
        unit = "share of the attention of the last layer"
        return {"weights": rounded(weights), "unit": unit, "signed": False, "notes": []}
    how: dict[str, Any] = {}
    if estimator.task_name == "classification":
        how["target"] = None if target is None else estimator.classes_.tolist()[target]
    elif not estimator._per_series:
        how["target"] = estimator._outputs[target or 0]
        if estimator.task_name != "forecasting":
            how["at"] = when
    found = estimator.explain(shown, "occlusion", most_parts=parts, **how)
    weights = found.attributions[0]
    # a forecast goes by the last points only
    unseen = np.full((len(shown[0]) - len(weights), weights.shape[1]), np.nan)
    weights = np.concatenate([unseen, weights])
    return {"weights": rounded(weights), "unit": found.unit, "signed": True, "notes": list(found.notes)}


def event_layer(estimator: Any, edited: EditedEvents) -> dict[str, Any]:
    """Attributions [N][1] of the log intensity of all types together, at the end of what is known, to the events."""
    one = sequence_of(estimator, edited)
    # an event is not its own history
    after = [t + 0.01 * estimator.scaling_.unit for t in one.times[-1:]]
    wanted = edited.until if edited.until is not None else edited.end
    at = max([*after, *([] if wanted is None else [wanted])], default=0.0)
    if int((one.times < at).sum()) < 2:
        return {"weights": [], "unit": "", "signed": True, "notes": ["two events are needed"]}
    found = estimator.explain(one, "occlusion", at=[at], most_parts=MOST_PARTS)
    weights = np.nansum(found.attributions[0], 1, keepdims=True)
    return {"weights": rounded(weights), "unit": found.unit, "signed": True, "notes": list(found.notes)}


def sequence_of(estimator: Any, edited: EditedEvents) -> EventSequence:
    """The events that the model is shown.

    Raises:
        DataError: naming the event that does not fit.
    """
    if len(edited.types) != len(edited.times):
        raise DataError(f"{len(edited.types)} types for {len(edited.times)} events", remedy="give one for each")
    count = len(estimator.type_names_)
    for n, kind in enumerate(edited.types, 1):
        if not 0 <= kind < count:
            raise DataError(f"there is no type {kind}", row=n, remedy=f"give a number from 0 to {count - 1}")
    features = None
    width = len(estimator.scaling_.feature_mean or ())
    if width:
        rows = edited.features or [[None] * width for _ in edited.times]
        features = np.array([[np.nan if x is None else x for x in row] for row in rows]).reshape(len(rows), width)
    one = EventSequence.of(np.array(edited.times), np.array(edited.types, int), features=features, id="edited")
    if edited.until is not None:
        one = one.events(np.flatnonzero(one.times <= edited.until))
    return one


def answer_events(estimator: Any, edited: EditedEvents) -> dict[str, Any]:
    """Intensities of all types, and the next event with the probabilities of its type."""
    one = sequence_of(estimator, edited)
    if not len(one):
        return {"known": False}
    alone = EventSet([one], type_names=estimator.type_names_)
    last = float(one.times[-1])
    waited = 0.0 if edited.until is None else edited.until - last
    expected, median, shares = _next_event(estimator, alone) if waited <= 0 else _next_after(estimator, one, waited)
    finite = [t for t in (expected, median) if t is not None]
    end = max([last, *([] if edited.end is None else [edited.end]), *(last + 2 * (t - last) for t in finite)])
    if edited.start is not None and edited.end is not None:
        end = edited.end
    at = _moments(one.times, edited.start, end)
    rates = estimator.intensity_at(one, at) if len(at) else np.zeros((0, len(estimator.type_names_)))
    answer: dict[str, Any] = {
        "known": True,
        "intensity": {"times": at.tolist(), "rates": rounded(rates.T)},
        "next": {"expected": expected, "median": median, "probabilities": rounded(shares)},
    }
    if len(one) > 1:
        answer["log_likelihood"] = float(estimator.log_likelihood(alone)[0]) / (len(one) - 1)
    return answer


def _next_event(estimator: Any, alone: EventSet) -> tuple[float | None, float | None, NDArray[np.float64]]:
    """Expected and median time of the next event, counted from the last one, and the shares of its type."""
    table = estimator.predict_next(alone, probabilities=True)
    expected, median = (_seconds(table[name], estimator.time_kind_) for name in ("expected_time", "median_time"))
    return expected, median, np.array([table[f"probability_{name}"][0] for name in estimator.type_names_], np.float64)


def _next_after(
    estimator: Any, one: EventSequence, waited: float
) -> tuple[float | None, float | None, NDArray[np.float64]]:
    """The same, given that nothing has happened for a while since the last event: by integrating the intensity.

    The chance of no event until s is ``S(s) = exp(-∫_t^s λ)``, the expected wait ``∫ S``.
    """
    start = float(one.times[-1]) + waited
    reach = 8.0 * estimator.scaling_.unit
    while True:
        # denser near the present, where the intensity may still fall
        after = reach * np.linspace(0, 1, INTENSITY) ** 2
        rates = estimator.intensity_at(one, start + after)
        total = rates.sum(1)
        passed = np.append(0, np.cumsum(np.diff(after) * (total[1:] + total[:-1]) / 2))
        if passed[-1] > _SURE or reach > _LONGEST * estimator.scaling_.unit:
            break
        reach *= 4
    survival = np.exp(-passed)
    known = bool(passed[-1] > np.log(2))
    median = start + float(np.interp(np.log(2), passed, after)) if known else None
    expected = None
    if passed[-1] > _SURE:
        expected = start + float((np.diff(after) * (survival[1:] + survival[:-1]) / 2).sum() + survival[-1] / total[-1])
    at = int(np.searchsorted(after, (after[0] if expected is None else expected - start)).clip(0, len(after) - 1))
    return expected, median, rates[at] / max(float(total[at]), 1e-300)


def _moments(events: NDArray[np.float64], begin: float | None, end: float) -> NDArray[np.float64]:
    """Times of a curve that jumps at events: an even grid, and just before and after every event."""
    first = float(events[0])
    start = first if begin is None else max(first, begin)
    span = end - start
    if span <= 0:
        return np.zeros(0)
    grid = np.linspace(start, end, INTENSITY)
    near = 1e-6 * span
    edges = np.concatenate([events, events + near]) if len(events) <= INTENSITY else events[:0]
    at = np.unique(np.concatenate([grid, edges]))
    return at[(at > first) & (at >= start) & (at <= end)]


def _seconds(column: Any, kind: str) -> float | None:
    """The first of some times as a number."""
    if kind != "numbers" and column.dtype.is_temporal():
        column = column.dt.epoch("us") / 1e6 if kind in DATES else column.dt.total_microseconds() / 1e6
    value = column[0]
    return None if value is None or not np.isfinite(value) else float(value)


def rounded(values: NDArray[Any]) -> list[Any]:
    """For JSON: five significant digits, None where a value is not finite."""
    numbers = np.asarray(values, np.float64)
    finite = np.isfinite(numbers) & (numbers != 0)
    place = np.where(finite, 4 - np.floor(np.log10(np.abs(np.where(finite, numbers, 1.0)))), 0.0)
    scale = 10.0 ** np.clip(place, -300, 300)
    short = np.where(finite, np.round(numbers * scale) / scale, numbers)
    plain = short.astype(object)
    plain[~np.isfinite(short)] = None
    found: list[Any] = plain.tolist()
    return found

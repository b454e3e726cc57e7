"""Inputs that an exported graph is checked on, and what the estimator itself answers for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.scaling import Scaling
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.tables import without_answers
from contiformer.integrations.graph import SeriesGraph

#: Series that are checked, at most, and how many of them at a time.
MOST, TOGETHER = 64, 16
#: Points of a generated series, at most.
MOST_POINTS = 100

Numbers = NDArray[Any]


@dataclass(frozen=True)
class Example:
    """One series with the times that are asked for, and the estimator's answers by the names of the outputs."""

    series: Series
    asked: Numbers | None
    answers: dict[str, Numbers]


def chosen(data: SeriesSet, history: int | None) -> SeriesSet:
    """At most :data:`MOST` series, spread over the set, among them the longest; of few histories several parts."""
    some = np.unique(np.linspace(0, len(data) - 1, min(len(data), MOST)).astype(int)).tolist()
    if not data.lazy:
        spans = [one.span if len(one) else 0.0 for one in data]
        some = sorted({*some[: MOST - 2], int(np.argmax(spans)), int(np.argmax(data.lengths))})
    series = [data[n] for n in some]
    if history is not None:
        each = max(1, MOST // (2 * len(series)))
        ends = [np.unique(np.linspace(min(history, len(one)), len(one), each).astype(int)) for one in series]
        series = [
            replace(one.points(slice(max(0, end - 2 * history), end)), id=f"{one.id}@{end}")
            for one, last in zip(series, ends, strict=True)
            for end in last.tolist()
        ]
    return SeriesSet([one for one in series if len(one)], schema=data.schema)


def generated(estimator: Any, seed: int = 0) -> SeriesSet:
    """Series drawn from the statistics that the model has of its training data."""
    scaling, shown, draw = estimator.scaling_, estimator.config_["inputs"], np.random.default_rng(seed)
    schema, history = estimator.schema_, getattr(estimator, "_history", None)
    capabilities = estimator.tasks_[0].backbone.capabilities
    gap = shown["spacing"] * scaling.unit
    usual = int(np.clip(round(1 / shown["spacing"]), 4, MOST_POINTS)) if history is None else history
    series = []
    for number in range(12):
        count = usual if not capabilities.irregular else int(draw.integers(max(2, usual // 2), usual + 1))
        count = count + usual // 2 if history is not None else count
        gaps = np.full(count, gap) if not capabilities.irregular else draw.exponential(gap, count)
        times = scaling.start + np.cumsum(gaps)
        values = _drawn(scaling, draw, count, static=False)
        if shown["gaps"] and capabilities.missing:
            values[draw.random(values.shape) < 0.3] = np.nan
        fixed = _drawn(scaling, draw, 1, static=True)[0] if schema.static else None
        series.append(Series.of(times, values, static=fixed, id=f"generated-{number}"))
    return SeriesSet(series, schema=replace(schema, targets=(), classes=None))


def _drawn(scaling: Scaling, draw: np.random.Generator, count: int, *, static: bool) -> Numbers:
    scores, mean, std = (
        (scaling.static_scores, scaling.static_mean, scaling.static_std)
        if static
        else (scaling.scores, scaling.mean, scaling.std)
    )
    normal = draw.normal(size=(count, len(mean)))
    if scores:
        return np.stack([np.interp(normal[:, n], y, x) for n, (x, y) in enumerate(scores)], axis=1)
    return normal * np.asarray(std) + np.asarray(mean)


def examples(estimator: Any, data: SeriesSet, graph: SeriesGraph) -> list[Example]:
    """The series with the answers of the estimator's own ``predict``."""
    bare, scaled = estimator._scaled(without_answers(data))
    if not graph.asked:
        name = graph.outputs[0]
        said = (
            estimator._probabilities(scaled)
            if name == "probabilities"
            else estimator._mean_over_members(scaled, "values")
        )
        return [Example(one, None, {name: answer}) for one, answer in zip(bare, said, strict=True)]
    seen = bare
    if graph.history is not None:
        seen = bare.map(lambda one: one.points(slice(max(0, len(one) - estimator._history), None)))
        times = estimator._future(None, seen, "set")
    else:
        times = [_within(one.times) for one in bare]
    head = graph.tasks[0].head
    levels = head.quantiles if head.law == "quantiles" else None  # type: ignore[union-attr]
    said = estimator._predict_at(seen, estimator.scaling_.apply(seen), times, levels)
    found = []
    for one, asked, answer in zip(bare, times, said, strict=True):
        answers = {"mean": answer.mean, "std": answer.std, "quantiles": answer.quantiles}
        found.append(Example(one, asked, {name: answers[name] for name in graph.outputs}))
    return found


def _within(times: Numbers) -> Numbers:
    """The times of a series, and those in the middle between them."""
    return np.sort(np.concatenate([times, (times[1:] + times[:-1]) / 2]))


def batches(found: list[Example], size: int = TOGETHER) -> Iterator[tuple[dict[str, Numbers], list[Example]]]:
    """The inputs of the graph for some examples at a time, of similar length; first of one alone."""
    ordered = sorted(found, key=lambda one: len(one.series))
    yield padded(ordered[:1]), ordered[:1]
    for start in range(0, len(ordered), size):
        some = ordered[start : start + size]
        yield padded(some), some


def padded(some: list[Example]) -> dict[str, Numbers]:
    """The inputs of the graph: series padded to the longest, and times that are asked for by repeating the last."""
    longest = max(1, *(len(one.series) for one in some))
    times = np.zeros((len(some), longest))
    values = np.full((len(some), longest, some[0].series.channels), np.nan)
    for row, one in enumerate(some):
        count = len(one.series)
        times[row, :count], values[row, :count] = one.series.times, one.series.values
    given = {"times": times, "values": values, "lengths": np.array([len(one.series) for one in some], np.int64)}
    fixed = [one.series.static for one in some if one.series.static is not None]
    if fixed:
        given["static"] = np.stack(fixed).astype(np.float64)
    asked = [one.asked for one in some if one.asked is not None]
    if asked:
        width = max(map(len, asked))
        given["query_times"] = np.stack([np.pad(at, (0, width - len(at)), mode="edge") for at in asked])
    return given


def difference(said: dict[str, Numbers], some: list[Example], scales: dict[str, Any]) -> float:
    """The largest difference between a graph's outputs and the answers, in units of ``scales``."""
    worst = 0.0
    for name, scale in scales.items():
        for row, one in zip(said[name], some, strict=True):
            wanted = np.asarray(one.answers[name])
            if not wanted.size:
                continue
            gap = np.abs((row if wanted.ndim == 0 else row[: len(wanted)]) - wanted) / scale
            worst = float(np.maximum(worst, gap.max()))  # NaN stays
    return worst

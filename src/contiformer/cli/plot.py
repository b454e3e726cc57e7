"""``contiformer plot``: pictures of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from contiformer.cli.run_folder import histories, is_finished, load_run, read_start, tell_files
from contiformer.data import DataError, EventSet, SeriesSet
from contiformer.data.conversion import DATES
from contiformer.estimators.event_stream import one_step_ahead
from contiformer.estimators.labels import with_labels
from contiformer.plots.classes import draw_confusion, draw_reliability
from contiformer.plots.curves import Curve, draw_agreement, draw_curves, draw_learning
from contiformer.plots.events import IntensityCurve, draw_gaps, draw_intensities, draw_residuals
from contiformer.plots.figures import require_matplotlib

#: Panels: series or sequences, and channels of each.
ROWS, COLUMNS = 3, 3
#: Events of a sequence in a picture: more cannot be told apart.
_MOST_EVENTS = 60
#: Sequences are predicted until they have so many events.
_ENOUGH = 20_000
_POINTS_BETWEEN = 12
_LEVELS = (0.05, 0.95)
_NORMAL_95 = 1.6448536269514722


def plot(run: Path, output: Path | None) -> None:
    """Draw the pictures into ``output`` and print their paths."""
    require_matplotlib()
    folder = output or run / "plots"
    # a run that goes on has no model yet, but its curves can be looked at
    estimator: Any = load_run(run) if is_finished(run) or not histories(run) else None
    for path in learning_curves(run, estimator, folder / "learning.png"):
        typer.echo(path)
    if estimator is None:
        return
    data, part = shown_part(run, estimator)
    if data is not None:
        for path in pictures(estimator, data, part, folder):
            typer.echo(path)


def learning_curves(run: Path, estimator: Any, path: Path) -> list[Path]:
    """Draw the learning curves of a run, where it has any."""
    done = histories(run)
    if not done:
        return []
    monitor = "train_loss" if estimator is None else estimator.tasks_[0].monitor
    # models of older versions do not say which epoch was kept
    kept = () if estimator is None else estimator.metrics_.get("kept_epochs", ())
    return [draw_learning(done, path, monitor, kept)]


def pictures(
    estimator: Any, data: Any, part: str, folder: Path, ending: str = ".png", judged: Any = None
) -> Iterator[Path]:
    """Draw the pictures of a task; ``judged`` are predictions that were made before, where it goes by them."""
    yield from _DRAWN[estimator.task_name](estimator, data, part, folder, ending, judged)


def shown_part(run: Path, estimator: Any) -> tuple[Any, str]:
    """The test part, or the series that were validated on, and what to call them."""
    start = read_start(run)
    if start is None:
        return None, ""
    source: Any = start.source
    tell_files(source)
    test = source.testing(estimator)
    if test is not None:
        return test, "test"
    training, validation, _ = source.training(start.task, start.parameters)
    if validation is None:
        if start.task == "events":
            validation = estimator._parts(training.data)[1]
        else:
            labelled = start.task == "classification"
            validation = estimator._parts(with_labels(training, None, classes=True) if labelled else training, 0)[1]
    return validation, "validation"


def _spread(count: int, chosen: int) -> Any:
    """Positions evenly over a set, so that nothing is chosen by its result."""
    return np.unique(np.linspace(0, count - 1, chosen).astype(int))


def _of_classes(estimator: Any, data: SeriesSet, part: str, folder: Path, ending: str, judged: Any) -> Iterator[Path]:
    classes = estimator.classes_.tolist()
    (found,) = judged or estimator.judged(data)
    probability, label = found["probability"], found["label"]
    title = f"{len(data):,} {part} series"
    yield draw_confusion(label, probability.argmax(1), classes, folder / f"confusion{ending}", title)
    yield draw_reliability(probability, label, folder / f"reliability{ending}", title)


def _of_regression(
    estimator: Any, data: SeriesSet, part: str, folder: Path, ending: str, judged: Any
) -> Iterator[Path]:
    if estimator._in_time:
        yield from _of_series(estimator, data, part, folder, ending, judged)
        return
    found = judged or estimator.judged(data)
    truth, miss = found[0]["label"], found[0]["miss"]
    title = f"{len(data):,} {part} series, R² {estimator.scores(found)['r2']:.3f}"
    axes = {"xlabel": "true", "ylabel": "predicted", "aspect": "equal"}
    path = folder / f"numbers{ending}"
    yield draw_agreement(truth, truth + miss, path, title, axes, markersize=3.5, alpha=0.6)


def _of_series(estimator: Any, data: SeriesSet, part: str, folder: Path, ending: str, _: Any) -> Iterator[Path]:
    forecasting = estimator.task_name == "forecasting"
    if not data.schema.targets:
        data = estimator._examples(data)
    long_enough = np.flatnonzero(data.lengths > 1)
    if not len(long_enough):
        raise DataError(f"no {part} series has two points", remedy="there is nothing to draw")
    chosen = estimator._validation_form(data.select(long_enough[_spread(len(long_enough), ROWS)]))
    rows = [_row(estimator, chosen.select([n])) for n in range(len(chosen))]
    schema = data.schema
    time = "" if schema.dates else f"time ({schema.time_unit})" if schema.time_unit else "time"
    name, items = ("forecasts", "windows") if forecasting else ("series", "series")
    title = f"{len(rows)} of {len(data):,} {part} {items}"
    path = folder / f"{name}{ending}"
    yield draw_curves(rows, path, title=title, time=time, dates=schema.dates, band="90 % interval")


def _row(estimator: Any, one: SeriesSet) -> list[Curve]:
    """The panels of one series."""
    series = one[0]
    assert series.target_times is not None
    assert series.target_values is not None
    forecasting = estimator.task_name == "forecasting"
    known = np.concatenate([series.times, series.target_times])
    at = series.target_times if forecasting else np.linspace(known.min(), known.max(), 300)
    mean, low, high = _mean_and_band(estimator, one, at)
    outputs, inputs = list(estimator._outputs), list(one.channels)
    nothing = (series.times[:0], series.times[:0])
    most = list(range(len(outputs)))
    if set(outputs) <= set(inputs):
        # the channels with most observations
        observed = series.observed.sum(0)
        most.sort(key=lambda n: -observed[inputs.index(outputs[n])])
    return [
        Curve(
            title=outputs[n] if series.id is None else f"{outputs[n]}, {series.id}",
            observed=(series.times, series.values[:, inputs.index(outputs[n])]) if outputs[n] in inputs else nothing,
            hidden=(series.target_times, series.target_values[:, n]),
            dense=not forecasting and len(series.target_times) > 2 * len(series),
            times=at,
            mean=mean[:, n],
            low=None if low is None else low[:, n],
            high=None if high is None else high[:, n],
        )
        for n in sorted(most[:COLUMNS])
    ]


def _mean_and_band(estimator: Any, one: SeriesSet, at: Any) -> tuple[Any, Any, Any]:
    """Mean and 90 % band, None for a model without one."""
    law, forecasting = estimator.law, estimator.task_name == "forecasting"
    mean = estimator.predict(one, at=[at])[0].values
    if law == "point" or (not forecasting and law != "gaussian"):
        return mean, None, None
    if forecasting:
        levels = _LEVELS if law == "gaussian" else (estimator.quantiles[0], estimator.quantiles[-1])
        band = estimator.predict(one, at=[at], quantiles=levels)[0].values
        return mean, band[:, 0::2], band[:, 1::2]
    std = estimator.predict(one, at=[at], return_std=True)[1][0].values
    return mean, mean - _NORMAL_95 * std, mean + _NORMAL_95 * std


def _of_events(estimator: Any, found: Any, part: str, folder: Path, ending: str, judged: Any) -> Iterator[Path]:
    data: EventSet = getattr(found, "data", found)
    data = data.select(np.flatnonzero(data.lengths > 1))
    if not len(data):
        raise DataError(f"no {part} sequence has two events", remedy="there is nothing to draw")
    share = min(1.0, _ENOUGH / max(1, int(data.lengths.sum())))
    data = data.select(_spread(len(data), max(ROWS, int(share * len(data)))))
    ahead = one_step_ahead(estimator, data)
    title = f"{len(ahead.wait):,} events of {len(data):,} {part} sequences"
    yield _intensities(estimator, data, part, folder / f"intensity{ending}")
    rmse = float(np.sqrt(np.mean((ahead.wait - ahead.expected) ** 2)))
    yield draw_gaps(ahead.wait, ahead.expected, folder / f"gaps{ending}", f"{title}\nRMSE {rmse:.4g}")
    residuals = judged[0]["residuals"] if judged else estimator.residuals(data)
    yield draw_residuals(residuals, folder / f"residuals{ending}", f"{len(residuals):,} {part} events")
    names = estimator.type_names_
    if len(names) > 1:
        yield draw_confusion(ahead.type, ahead.predicted, names, folder / f"confusion{ending}", title)


def _intensities(estimator: Any, data: EventSet, part: str, path: Path) -> Path:
    rows = []
    for number, whole in enumerate(data.select(_spread(len(data), ROWS))):
        one = whole.events(slice(0, _MOST_EVENTS))
        at = _between(one.times)
        cut = f", first {len(one)} of {len(whole)} events" if len(one) < len(whole) else ""
        name = f"sequence {number if one.id is None else one.id}{cut}"
        rows.append(IntensityCurve(name, at, estimator.intensity_at(one, at).sum(1), one.times, one.types))
    title = f"{len(rows)} of {len(data):,} {part} sequences, intensity of all types together"
    return draw_intensities(rows, estimator.type_names_, path, title=title, dates=estimator.time_kind_ in DATES)


def _between(times: Any) -> Any:
    """Times between each event and the next, the ends among them: intensities jump there."""
    share = np.linspace(0, 1, _POINTS_BETWEEN)
    # just after an event, its influence is there and that of the next is not
    share[0] = 1e-6
    at = (times[:-1, None] + np.diff(times)[:, None] * share).ravel()
    return np.unique(at[at > times[0]])


#: The pictures of each task.
_DRAWN = {
    "classification": _of_classes,
    "regression": _of_regression,
    "interpolation": _of_series,
    "forecasting": _of_series,
    "events": _of_events,
}

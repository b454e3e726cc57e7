"""``contiformer plot``: pictures of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contiformer.cli import options
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    from contiformer.cli.source import Source
    from contiformer.data.series_set import SeriesSet
    from contiformer.reports.curves import Curve

#: Panels: series, and channels of each.
ROWS, COLUMNS = 3, 3
_LEVELS = (0.05, 0.95)
_NORMAL_95 = 1.6448536269514722
_BAND = "90 % interval"


def plot(
    run: options.Run,
    output: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Default: plots/ in the run folder.")] = None,
) -> None:
    """Learning curves, and what the model says about the test series (without a test part: the validation series).

    Classification gets a confusion matrix and a reliability diagram, interpolation and forecasting some series with
    prediction and band, regression a picture of true and predicted numbers; events get intensities, gaps, residuals and
    a confusion matrix. The paths are printed.

    [bold]Example[/bold]

      contiformer plot runs/classification-BasicMotions-seed0
    """
    from contiformer.cli.run_folder import histories  # noqa: PLC0415
    from contiformer.reports.figures import require_matplotlib  # noqa: PLC0415
    from contiformer.reports.learning import draw_learning  # noqa: PLC0415

    require_matplotlib()
    folder = output or run / "plots"
    done = histories(run)
    estimator = _finished(run)
    if estimator is None and not done:
        raise DataError("there is no run here", file=run, remedy="pass a folder that `contiformer train` wrote")
    if done:
        # a run that goes on has no model yet, but its curves can be looked at
        monitor, mode = ("train_loss", "min") if estimator is None else _chosen_by(estimator)
        typer.echo(draw_learning(done, folder / "learning.png", monitor, mode))
    if estimator is not None:
        for path in _pictures(run, estimator, folder):
            typer.echo(path)


def _finished(run: Path) -> Any:
    from contiformer.cli.run_folder import histories, is_finished, load_run  # noqa: PLC0415

    return load_run(run) if is_finished(run) or not histories(run) else None


def _chosen_by(estimator: Any) -> tuple[str, str]:
    task = estimator.tasks_[0]
    return task.monitor, task.mode


def _pictures(run: Path, estimator: Any, folder: Path) -> Iterator[Path]:
    from contiformer.cli.event_pictures import event_pictures  # noqa: PLC0415
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415

    if estimator.task_name == "events":
        yield from event_pictures(read_start(run), estimator, folder)
        return
    data, part = shown_data(run, estimator)
    if data is None:
        return
    if estimator.task_name == "classification":
        yield from _of_classes(estimator, data, part, folder)
    elif estimator.task_name == "regression" and not estimator._in_time:
        yield _of_numbers(estimator, data, part, folder)
    else:
        yield _of_curves(estimator, data, part, folder)


def shown_data(run: Path, estimator: Any) -> tuple[SeriesSet | None, str]:
    """The test part, or the series that were validated on, and what to call them."""
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415
    from contiformer.estimators.labels import with_labels  # noqa: PLC0415

    start = read_start(run)
    if start is None:
        return None, ""
    source = cast("Source", start.source)
    test = source.testing(estimator)
    if test is not None:
        return test, "test"
    training, validation, _ = source.training(start.task, start.parameters)
    if validation is None:
        if start.task == "classification":
            training = with_labels(training, None, classes=True)
        validation = estimator._parts(training, 0)[1]
    return validation, "validation"


def _of_classes(estimator: Any, data: SeriesSet, part: str, folder: Path) -> Iterator[Path]:
    import numpy as np  # noqa: PLC0415

    from contiformer.reports.classes import draw_confusion, draw_reliability  # noqa: PLC0415

    classes = estimator.classes_.tolist()
    number = {label: n for n, label in enumerate(classes)}
    label = np.array([number[one] for one in data.labels])
    probability = estimator.predict_proba(data)
    title = f"{len(data):,} {part} series"
    yield draw_confusion(label, probability.argmax(1), classes, folder / "confusion.png", title)
    yield draw_reliability(probability, label, folder / "reliability.png", title)


def _of_numbers(estimator: Any, data: SeriesSet, part: str, folder: Path) -> Path:
    import numpy as np  # noqa: PLC0415

    from contiformer.reports.curves import draw_agreement  # noqa: PLC0415

    truth = np.array(data.labels, np.float64)
    title = f"{len(data):,} {part} series, R² {estimator.evaluate(data)['r2']:.3f}"
    return draw_agreement(truth, estimator.predict(data), folder / "numbers.png", title)


def _of_curves(estimator: Any, data: SeriesSet, part: str, folder: Path) -> Path:
    import numpy as np  # noqa: PLC0415

    from contiformer.reports.curves import draw_curves  # noqa: PLC0415
    from contiformer.tasks.interpolation import hide_observations  # noqa: PLC0415

    forecasting = estimator.task_name == "forecasting"
    if forecasting and not data.schema.targets:
        data = estimator._examples(data)
    long_enough = np.flatnonzero(data.lengths > 1)
    if not len(long_enough):
        raise DataError(f"no {part} series has two points", remedy="there is nothing to draw")
    # spread over the set, not chosen by result
    chosen = data.select(long_enough[np.unique(np.linspace(0, len(long_enough) - 1, ROWS).astype(int))])
    if estimator.task_name == "interpolation" and not chosen.schema.targets:
        chosen = hide_observations(chosen, estimator.hide, estimator.seed)
    rows = [_row(estimator, chosen.select([n])) for n in range(len(chosen))]
    schema = data.schema
    time = "" if schema.dates else f"time ({schema.time_unit})" if schema.time_unit else "time"
    name = "forecasts" if forecasting else "series"
    title = f"{len(rows)} of {len(data):,} {part} {'windows' if forecasting else 'series'}"
    return draw_curves(rows, folder / f"{name}.png", title=title, time=time, dates=schema.dates, band=_BAND)


def _row(estimator: Any, one: SeriesSet) -> list[Curve]:
    """The panels of one series."""
    import numpy as np  # noqa: PLC0415

    from contiformer.reports.curves import Curve  # noqa: PLC0415

    series = one[0]
    assert series.target_times is not None
    assert series.target_values is not None
    forecasting = estimator.task_name == "forecasting"
    known = np.concatenate([series.times, series.target_times])
    at = series.target_times if forecasting else np.linspace(known.min(), known.max(), 300)
    mean, low, high = _said(estimator, one, at)
    outputs = list(estimator._outputs)
    inputs = list(one.channels)
    observed = series.observed.sum(0)
    # the channels about which most is known
    if set(outputs) <= set(inputs):
        most = sorted(range(len(outputs)), key=lambda n: -observed[inputs.index(outputs[n])])[:COLUMNS]
    else:
        most = list(range(len(outputs)))[:COLUMNS]
    dense = not forecasting and len(series.target_times) > 2 * len(series)
    return [
        Curve(
            title=outputs[n] if series.id is None else f"{outputs[n]}, {series.id}",
            seen=(series.times, series.values[:, inputs.index(outputs[n])])
            if outputs[n] in inputs
            else (series.times[:0], series.times[:0]),
            asked=(series.target_times, series.target_values[:, n]),
            line=dense,
            times=at,
            mean=mean[:, n],
            low=None if low is None else low[:, n],
            high=None if high is None else high[:, n],
        )
        for n in sorted(most)
    ]


def _said(estimator: Any, one: SeriesSet, at: Any) -> tuple[Any, Any, Any]:
    """Mean and 90 % band, None where the model knows none."""
    law = estimator.law
    mean = estimator.predict(one, at=[at])[0].values
    if law == "point" or (estimator.task_name != "forecasting" and law != "gaussian"):
        return mean, None, None
    if estimator.task_name == "forecasting":
        levels = _LEVELS if law == "gaussian" else (estimator.quantiles[0], estimator.quantiles[-1])
        band = estimator.predict(one, at=[at], quantiles=levels)[0].values
        return mean, band[:, 0::2], band[:, 1::2]
    std = estimator.predict(one, at=[at], return_std=True)[1][0].values
    return mean, mean - _NORMAL_95 * std, mean + _NORMAL_95 * std

"""``contiformer report``: one HTML page about a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from contiformer import __version__
from contiformer.cli.plot import learning_curves, pictures, shown_part
from contiformer.cli.predict import check_output
from contiformer.cli.run_folder import histories, load_run, read_start
from contiformer.data import write_text
from contiformer.estimators.model_card import kept_weights, size_of
from contiformer.estimators.tables import names_of
from contiformer.plots.classes import confusion, wilson
from contiformer.plots.events import exponential_distance
from contiformer.plots.figures import require_matplotlib
from contiformer.plots.page import (
    Bars,
    Block,
    Entry,
    Figures,
    Findings,
    Fold,
    Heading,
    Picture,
    Sheet,
    Words,
    page_to_html,
)

#: Resamples of the series for the intervals, and their percentiles.
RESAMPLES, _INSIDE_95 = 200, (2.5, 97.5)
#: The figures of the first lines, as far as a task has them.
_HEADLINE = ("log_likelihood", "accuracy", "auroc", "r2", "rmse", "mae", "loss", "ece", "coverage90")
_TILES = 4
#: Rows of the table of the worst answers.
_WORST = 50
#: Classes are imbalanced where the most frequent is so many times the rarest; calibration errors above this are told.
_IMBALANCED, _UNSURE = 2, 0.05
_CAPTIONS = {
    "learning": "Learning curve: training loss and validation metric by epoch; the mark is the epoch that was kept.",
    "confusion": "Confusion matrix: a row for each true class.",
    "reliability": "Reliability: how often it occurred against the probability that was given.",
    "numbers": "Predicted against true numbers.",
    "series": "Some series, evenly chosen: observed, hidden and predicted.",
    "forecasts": "Some windows, evenly chosen: known, what came, and the forecast.",
    "intensity": "Intensity of some sequences over time, with their events.",
    "gaps": "Expected against true time to the next event.",
    "residuals": "Calibration of the next time: integrated intensities against the unit exponential law.",
}


def report(run: Path, output: Path | None) -> None:
    """Write the page and print its path."""
    require_matplotlib()
    estimator: Any = load_run(run)
    path = output or run / "report.html"
    check_output(path, (".html",))
    data, part = shown_part(run, estimator)
    if data is not None and estimator._per_series:
        # series without a label are not judged, and must not lend their names to others
        data = estimator._answered(data, None)
    with TemporaryDirectory() as folder:
        page = page_to_html(list(_blocks(run, estimator, data, part, Path(folder))))
    write_text(path, page)
    typer.echo(path)


def _blocks(run: Path, estimator: Any, data: Any, part: str, folder: Path) -> Iterator[Block]:
    judged = None if data is None else estimator.judged(data)
    residuals = None if data is None or estimator.task_name != "events" else estimator.residuals(data)
    part = part or "validation"
    metrics = estimator.metrics_.get("validation", {}) if judged is None else estimator.scores(judged)
    bounds = {} if judged is None else intervals(estimator, judged)
    start = read_start(run)
    name = "" if start is None else f" of {start.source.name}"
    yield Heading(1, f"{estimator.task_name.capitalize()}{name} with {estimator.config_['backbone']}")
    yield Figures(tuple(_tiles(metrics, bounds, part)))
    yield Findings(tuple(_findings(estimator, metrics, judged, data, part, residuals)))
    yield Heading(2, "Charts")
    drawn = learning_curves(run, estimator, folder / "learning.svg")
    if judged is not None:
        seen = judged if residuals is None else [{"residuals": residuals}]
        drawn += pictures(estimator, data, part, folder, ".svg", seen)
        if rows := _channel_errors(estimator, judged[0]):
            yield Bars(f"RMSE of each channel on the {part} series, in its standard deviations", "", tuple(rows))
    yield from (Picture(one, _CAPTIONS[one.stem]) for one in drawn)
    yield Heading(2, "Tables")
    yield _metric_sheet(estimator, metrics, bounds, part)
    if judged is not None:
        yield from _answers(estimator, judged[0], data)
    yield from _facts(run, estimator)


def intervals(estimator: Any, judged: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, tuple[float, float]]:
    """95 % confidence intervals of the metrics: Wilson's for accuracy of series, bootstrap over series for others."""
    count = len(next(iter(judged[0].values())))
    if count < 2:
        return {}
    draw = np.random.default_rng(0)
    found = [estimator.scores(judged, draw.integers(0, count, count)) for _ in range(RESAMPLES)]
    bounds = {}
    for name in found[0]:
        values = np.array([one[name] for one in found if name in one])
        if len(values) == RESAMPLES and np.isfinite(values).all() and name != "events":
            low, high = np.percentile(values, _INSIDE_95)
            bounds[name] = (float(low), float(high))
    if "probability" in judged[0]:
        low, high = wilson(estimator.scores(judged)["accuracy"], count)
        bounds["accuracy"] = (float(low), float(high))
    return bounds


def _tiles(metrics: Mapping[str, float], bounds: Mapping[str, Any], part: str) -> Iterator[tuple[str, str, str]]:
    for name in [one for one in _HEADLINE if one in metrics][:_TILES]:
        within = f"95 % interval {bounds[name][0]:.4g} to {bounds[name][1]:.4g}" if name in bounds else ""
        yield f"{part} {name.replace('_', ' ')}", f"{metrics[name]:.4g}", within


def _findings(
    estimator: Any, metrics: Mapping[str, float], judged: Any, data: Any, part: str, residuals: NDArray[Any] | None
) -> Iterator[str]:
    known = estimator.metrics_
    items = "sequences" if estimator.task_name == "events" else "series"
    tested = "" if data is None else f", judged on {len(data):,} {part} {items}"
    counts = [known.get(name, "?") for name in ("training_series", "validation_series")]
    yield f"Data: trained on {counts[0]} {items}, validated on {counts[1]}{tested}."
    if part != "test":
        yield "Not a test: the model was chosen by these series, so expect somewhat worse on new ones."
    if judged is not None and "probability" in judged[0]:
        yield from _about_classes(estimator, metrics, judged[0], part)
    if "r2" in metrics:
        yield f"Against the mean: R² is {metrics['r2']:.3f}; 0 is what the mean of the labels reaches."
    if "coverage90" in metrics:
        yield f"Calibration: the 90 % intervals hold {metrics['coverage90']:.1%} of the values."
    if residuals is not None:
        distance = exponential_distance(residuals)
        yield f"Calibration: residuals are {distance:.3f} from the unit exponential law (KS distance; 0 is perfect)."
        of_type = np.array(estimator.scaling_.counts)
        most = int(of_type.argmax())
        share = of_type[most] / max(of_type.sum(), 1)
        yield f"Types: the most frequent of {len(of_type)} is {estimator.type_names_[most]}, {share:.1%} in training."
    channels = _channel_errors(estimator, judged[0]) if judged is not None else []
    if channels:
        name, size, _ = channels[0]
        mean = "1 is the error of its mean"
        yield f"Channels: the largest error is that of {name}, {size:.3f} of its standard deviations ({mean})."
    kept = kept_weights(estimator)
    if kept:
        yield f"Training: {' '.join(kept)}"


def _about_classes(estimator: Any, metrics: Mapping[str, float], judged: Any, part: str) -> Iterator[str]:
    classes = estimator.classes_.tolist()
    share = np.bincount(judged["label"], minlength=len(classes)) / len(judged["label"])
    most = int(share.argmax())
    constant = f"always answering it would be right in {share[most]:.1%}, the model is in {metrics['accuracy']:.1%}"
    balance = "imbalanced" if share[most] > _IMBALANCED * share.min() else "balanced"
    yield f"Classes: {balance}; the most frequent of {len(classes)} is {classes[most]} ({constant})."
    word = "can be taken at their word" if metrics["ece"] <= _UNSURE else "should not be taken at their word"
    yield f"Calibration: confidence and accuracy differ by {metrics['ece']:.3f} on average: probabilities {word}."
    never = [str(name) for name, n in zip(classes, share, strict=True) if not n]
    if never:
        yield f"Missing: the {part} series have none of {', '.join(never)}."


def _channel_errors(estimator: Any, judged: Any) -> list[tuple[str, float, str]]:
    """The RMSE of each channel in its standard deviations, the largest first, with that in its unit."""
    if "squares" not in judged or judged["squares"].ndim != 2:
        return []
    count = judged["count"].sum(0)
    rmse = np.sqrt(judged["squares"].sum(0) / np.maximum(count, 1))
    unit = estimator._undo(np.ones(len(rmse))) - estimator._undo(np.zeros(len(rmse)))
    rows = [
        (name, float(size), f"{size:.3f} ({size * one:.3g} in its unit)")
        for name, size, one, n in zip(estimator._outputs, rmse, unit, count, strict=True)
        if n
    ]
    return sorted(rows, key=lambda row: -row[1])


def _metric_sheet(estimator: Any, metrics: Mapping[str, float], bounds: Mapping[str, Any], part: str) -> Sheet:
    meanings = estimator.metric_meanings()
    lines = []
    for name, value in metrics.items():
        ends = [f"{end:.4g}" for end in bounds.get(name, ())] or ["", ""]
        lines.append((Entry(name), Entry(f"{value:.4g}"), *map(Entry, ends), Entry(meanings.get(name, ""))))
    heads = ("metric", part, "low", "high", "meaning")
    exact = "; that of accuracy by Wilson's formula" if estimator.task_name == "classification" else ""
    source = f"{RESAMPLES} bootstrap samples of the series{exact}"
    note = f"Low and high: 95 % confidence interval, from {source}."
    return Sheet(f"Metrics on the {part} series", heads, tuple(lines), 1, 1, (note,) if bounds else ())


def _answers(estimator: Any, judged: Any, data: Any) -> Iterator[Block]:
    """Precision and recall of each class, and the worst answers."""
    if "probability" in judged:
        classes, label, shares = estimator.classes_.tolist(), judged["label"], judged["probability"]
        best = shares.argmax(1)
        counts = confusion(label, best, len(classes))
        right, of_class, answered = counts.diagonal(), counts.sum(1), counts.sum(0)
        rows = [
            (str(name), str(of_class[k]), _ratio(right[k], answered[k]), _ratio(right[k], of_class[k]))
            for k, name in enumerate(classes)
        ]
        yield Fold("Classes", (_sheet("Each class", ("class", "series", "precision", "recall"), rows),))
        own = shares[np.arange(len(label)), label]
        worst = [n for n in np.argsort(own, kind="stable")[:_WORST] if best[n] != label[n]]
        names = names_of(data)
        rows = [(str(names[n]), str(classes[label[n]]), str(classes[best[n]]), f"{own[n]:.3f}") for n in worst]
        heads = ("series", "true", "answered", "probability of the true class")
        yield Fold(f"Wrong answers ({len(worst)}, the surest first)", (_sheet("Wrong answers", heads, rows),))
    elif "miss" in judged:
        order = np.argsort(-np.abs(judged["miss"]), kind="stable")[:_WORST]
        names, label = names_of(data), judged["label"]
        rows = [
            (str(names[n]), f"{label[n]:.4g}", f"{label[n] + judged['miss'][n]:.4g}", f"{judged['miss'][n]:+.4g}")
            for n in order
        ]
        heads = ("series", "true", "predicted", "error")
        yield Fold(f"Largest errors ({len(order)})", (_sheet("Largest errors", heads, rows),))


def _ratio(a: int, b: int) -> str:
    return f"{a / b:.3f}" if b else "-"


def _sheet(title: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]], names: int = 1) -> Sheet:
    return Sheet(title, heads, tuple(tuple(map(Entry, row)) for row in rows), names)


def _facts(run: Path, estimator: Any) -> Iterator[Block]:
    """History, data and parameters, versions last."""
    for n, history in enumerate(histories(run)):
        rows = [[f"{row['round'] + 1:.0f}", *(f"{row[key]:.4g}" for key in row if key != "round")] for row in history]
        heads = ("epoch", *(key for key in history[0] if key != "round"))
        yield Fold(f"Epochs{f' of member {n}' if n else ''} ({len(rows)})", (_sheet("Epochs", heads, rows, 0),))
    facts = [(name, value) for name, value in estimator._facts().items()]
    yield Fold("Data", (_sheet("Training data", ("fact", "value"), facts, 2),))
    options = [(name, str(value)) for name, value in estimator.to_options().items() if name != "run_dir"]
    yield Fold("Parameters", (_sheet("Parameters of the estimator and its training", ("name", "value"), options, 2),))
    seconds = estimator.metrics_.get("seconds", 0.0)
    made = f"{size_of(estimator)}, trained in {seconds:.0f} s"
    yield Words(f"{made}, seed {estimator.seed}; page written by contiformer {__version__}.")

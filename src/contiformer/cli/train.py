"""``contiformer train``: from data to a run folder with a trained model."""

from __future__ import annotations

import json
import shlex
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import typer

from contiformer.backbones import BACKBONES
from contiformer.cli import run_folder
from contiformer.cli.commands import INTERRUPTED, names_in
from contiformer.cli.evaluate import show_metrics
from contiformer.cli.run_folder import TASKS, Start
from contiformer.cli.settings import checked, merged, parse_assignments, read_settings
from contiformer.cli.source import EventSource, SeriesSource
from contiformer.data import did_you_mean, write_text
from contiformer.estimators.event_tables import EventColumns
from contiformer.estimators.input_checks import check_parameters
from contiformer.estimators.model_card import kept_weights
from contiformer.estimators.tables import Columns
from contiformer.tasks.baselines import BASELINES
from contiformer.tasks.events.build import WHOLE, check_names
from contiformer.training.processes import first_process

#: Options that mean nothing for events, and those that mean nothing for series.
_NOT_FOR_EVENTS = ("label", "labels", "static", "targets", "variable", "value", "categorical", "drop")
_ONLY_FOR_EVENTS = ("type", "fold")


def train(task: str, output: Path | None, **given: Any) -> None:
    """Train, resume, or say that the run is finished; the options are those of the command."""
    start = _resolve(task, given)
    folder = output or default_folder(start)
    if _is_done(folder, start):
        if first_process():
            typer.echo(f"{folder} is finished: there is nothing left to train. See `contiformer evaluate {folder}`.")
        return
    if first_process() and run_folder.has_checkpoints(folder):
        done = run_folder.histories(folder)
        if done:
            typer.echo(f"{folder} was not finished; going on after epoch {len(done[-1])}", err=True)
    _train(start, folder)


def _is_done(folder: Path, start: Start) -> bool:
    """Whether the run is finished; refuses a folder with another one. What failed before its first epoch is no run."""
    finished, begun = run_folder.is_finished(folder), run_folder.has_checkpoints(folder)
    if not finished and not begun:
        return False
    try:
        saved = run_folder.read_start(folder)
    except run_folder.DamagedStartError as error:
        if not begun:
            raise
        # the checkpoints know whether it is the same run, and the training refuses any other
        run_folder.note(f"{error.problem}; it is written again")
        return False
    if saved is not None:
        run_folder.refuse_other(folder, saved, start)
    elif finished:
        raise typer.BadParameter(f"{folder} holds a model that was not trained here.", param_hint="--output")
    return finished


def _resolve(task: str, given: dict[str, Any]) -> Start:
    """Everything that decides the run, checked before any work is done."""
    if task not in TASKS:
        raise typer.BadParameter(f"there is no task {task!r}; {did_you_mean(task, TASKS)}.", param_hint="TASK")
    kind = TASKS[task]
    settings = {} if given["config"] is None else read_settings(given["config"])
    parameters = checked(kind, settings, f"--config {given['config']}")
    parameters = merged(parameters, checked(kind, parse_assignments(given["assignments"] or ()), "--set"))
    parameters |= {name: given[name] for name in ("backbone", "seed") if given[name] is not None}
    baselines = [name for name, one in BASELINES.items() if task in one.tasks]
    known = (*BACKBONES, *(WHOLE if task == "events" else baselines))
    backbone = parameters.get("backbone", kind.backbone)
    if backbone not in known:
        advice = did_you_mean(backbone, known)
        raise typer.BadParameter(f"there is no backbone {backbone!r}; {advice}.", param_hint="--backbone")
    source = source_of(task, given, parameters.get("seed", 0))
    if task == "forecasting" and isinstance(source, SeriesSource):
        parameters = source.lengths() | parameters
    estimator: Any = kind.from_options(**parameters)
    check_parameters(estimator)
    if task == "events":
        check_names(estimator.backbone, estimator.intensity)
    return Start(task, estimator.to_options(), source)


def source_of(task: str, given: dict[str, Any], seed: int) -> SeriesSource | EventSource:
    """The source of the data that the options of a command name."""
    for name in _NOT_FOR_EVENTS if task == "events" else _ONLY_FOR_EVENTS:
        if given[name]:
            raise typer.BadParameter(f"{task} does not use this option.", param_hint=f"--{name}")
    common = {"test": given["test"], "seed": seed}
    values, targets = names_in(given["values"]), names_in(given["targets"])
    if task == "events":
        roles = EventColumns(given["id"], given["time"], given["type"], values)
        return EventSource.of(given["data"], columns=roles, fold=given["fold"], **common)
    if targets and task != "regression":
        why = f"{task} learns the channels themselves; name them in --values."
        raise typer.BadParameter(why, param_hint="--targets")
    named = {name: given[name] for name in ("id", "time", "label", "variable", "value", "duplicates")}
    several: dict[str, Any] = {name: names_in(given[name]) for name in ("static", "categorical")}
    columns = Columns(values=values or None, targets=targets, **several, **named)
    labels = None if given["labels"] is None else str(given["labels"].resolve())
    return SeriesSource.of(given["data"], columns=columns, labels=labels, drop=given["drop"], **common)


def default_folder(start: Start) -> Path:
    """As in ``runs/classification-BasicMotions-drop0.3-seed0``."""
    backbone = start.parameters["backbone"]
    model = "" if backbone == TASKS[start.task].backbone else f"-{backbone}"
    name = f"{start.task}-{start.source.name}{model}{start.source.variant}-seed{start.parameters['seed']}"
    return Path("runs") / name


def _train(start: Start, folder: Path) -> None:
    estimator: Any = TASKS[start.task].from_options(**{**start.parameters, "run_dir": folder})
    source: Any = start.source
    training, validation, columns = source.training(start.task, start.parameters)
    if first_process():
        # a test file that cannot be read stops the run before the training, not after it
        source.check_test(training)
        if not run_folder.has_checkpoints(folder):
            start.write(folder)
        typer.echo(
            f"{start.task} of {source.name}: {len(training):,} {source.items} to train and validate on", err=True
        )
    roles = {name: role for name, role in vars(columns).items() if name in signature(estimator.fit).parameters}
    try:
        estimator.fit(training, validation_data=validation, **roles)
    except KeyboardInterrupt:
        if first_process():
            start.write(folder)
            _say_how_to_resume(folder)
        raise typer.Exit(INTERRUPTED) from None
    if first_process():
        # by now it is certain that the checkpoints are of this run
        start.write(folder)
        _conclude(estimator, start, folder)


def _say_how_to_resume(folder: Path) -> None:
    done = run_folder.histories(folder)
    reached = f"what was learned up to epoch {len(done[-1])} is in {folder}" if done else "no epoch was finished yet"
    command = shlex.join(["contiformer", *sys.argv[1:]])
    typer.echo(f"stopped: {reached}; go on with the same command: {command}", err=True)


def _conclude(estimator: Any, start: Start, folder: Path) -> None:
    for outcome in estimator.outcomes_:
        for message in outcome.messages:
            typer.echo(f"note: {message}", err=True)
    columns = {"validation": estimator.metrics_["validation"]}
    test = start.source.testing(estimator)
    if test is not None:
        columns["test"] = estimator.metrics_["test"] = estimator.evaluate(test)
        write_text(folder / "metrics.json", json.dumps(estimator.metrics_, indent=1))
    title = f"{start.task} of {start.source.name}, {estimator.metrics_['seconds']:.0f} s"
    show_metrics(title, columns, estimator.metric_meanings())
    for line in kept_weights(estimator):
        typer.echo(line)
    files = ("model.safetensors", "config.json", "metrics.json", "README.md", "history.csv", "checkpoints/")
    typer.echo(f"wrote {folder}: {', '.join(name for name in files if (folder / name).exists())}")
    at = " --at TIMES" if start.task == "interpolation" else ""
    next_steps = [f"contiformer evaluate {folder}"] if test is not None else []
    next_steps += [f"contiformer predict {folder} --input FILE{at}"]
    next_steps += [f"contiformer {name} {folder}" for name in ("plot", "report", "explore")]
    typer.echo("next: " + "\n      ".join(next_steps))

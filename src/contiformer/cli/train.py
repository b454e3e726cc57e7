"""``contiformer train``: from data to a run folder with a trained model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contiformer.cli import options
from contiformer.cli.commands import INTERRUPTED, WRONG_USAGE, complain
from contiformer.data.errors import did_you_mean

if TYPE_CHECKING:
    from contiformer.cli.run_folder import Start
    from contiformer.estimators import Estimator

TASKS = {
    "classification": "Classifier",
    "regression": "Regressor",
    "interpolation": "Interpolator",
    "forecasting": "Forecaster",
}


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help=", ".join(TASKS))],
    data: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A data set of `contiformer datasets`, or CSV, Parquet, .ts, ARFF.")
    ],
    id: options.Id = None,
    time: options.Time = None,
    values: options.Values = None,
    label: options.Label = None,
    static: options.Static = None,
    targets: options.Targets = None,
    duplicates: options.Duplicates = "error",
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME|SHARE", help="What to test on (default: the test part of a set that has one)."),
    ] = None,
    drop: Annotated[float, typer.Option(min=0, max=0.99, help="Share of the points of each series to leave out.")] = 0,
    backbone: Annotated[str | None, typer.Option(help="The model inside (default: contiformer).")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML with parameters of the estimator.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One parameter; may be repeated, and wins.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the model and of --drop.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder (default: below runs/, named by the options).")
    ] = None,
) -> None:
    """Train a model, and leave it in a run folder. Ctrl-C and a crash lose little: start the same command again.

    A second start of a finished run only says so.

    [bold]Examples[/bold]

      contiformer train classification --data BasicMotions --drop 0.3

      contiformer train classification --data stays.csv --id patient --time hour --label died --test 0.2

      contiformer train forecasting --data ILI --set horizon=36

      contiformer train regression --data beds.parquet --id bed --time t --values x,y --targets load

      contiformer train interpolation --data spirals --config small.yaml --set learning_rate=0.01
    """
    given = dict(locals())
    from contiformer.cli import run_folder  # noqa: PLC0415

    start = _resolve(task, given)
    folder = output or default_folder(start)
    saved = run_folder.read_start(folder)
    if saved is not None:
        run_folder.refuse_other(folder, saved, start)
    elif run_folder.is_finished(folder):
        raise typer.BadParameter(f"{folder} holds a model that was not trained here.", param_hint="--output")
    if run_folder.is_finished(folder):
        if run_folder.first_process():
            typer.echo(f"{folder} is finished: there is nothing left to train. See `contiformer evaluate {folder}`.")
        return
    if run_folder.first_process():
        start.write(folder)
        done = run_folder.histories(folder)
        if done:
            typer.echo(f"{folder} was not finished; going on after epoch {len(done[-1])}", err=True)
    _train(start, folder)


def _resolve(task: str, given: dict[str, Any]) -> Start:
    """Everything that decides the run, checked before any work is done."""
    from contiformer import estimators  # noqa: PLC0415
    from contiformer.backbones import BACKBONES  # noqa: PLC0415
    from contiformer.cli.run_folder import Start  # noqa: PLC0415
    from contiformer.cli.settings import checked, merged, parse_assignments, read_settings  # noqa: PLC0415
    from contiformer.cli.source import LATER, Source  # noqa: PLC0415

    if task == "events":
        complain(LATER)
        raise typer.Exit(WRONG_USAGE)
    if task not in TASKS:
        raise typer.BadParameter(f"there is no task {task!r}; {did_you_mean(task, TASKS)}.", param_hint="TASK")
    kind: type[Estimator] = getattr(estimators, TASKS[task])
    settings = {} if given["config"] is None else read_settings(given["config"])
    parameters = checked(kind, settings, f"--config {given['config']}")
    parameters = merged(parameters, checked(kind, parse_assignments(given["assignments"] or ()), "--set"))
    parameters |= {name: given[name] for name in ("backbone", "seed") if given[name] is not None}
    if parameters.get("backbone", "contiformer") not in BACKBONES:
        name = parameters["backbone"]
        raise typer.BadParameter(
            f"there is no backbone {name!r}; {did_you_mean(name, BACKBONES)}.", param_hint="--backbone"
        )
    columns = options.columns_from(*(given[name] for name in ("id", "time", "values", "label", "static", "targets")))
    if columns.targets and task != "regression":
        raise typer.BadParameter(
            f"{task} learns the channels themselves; name them in --values.", param_hint="--targets"
        )
    source = Source.of(
        given["data"],
        columns=columns,
        duplicates=given["duplicates"],
        test=given["test"],
        drop=given["drop"],
        seed=parameters.get("seed", 0),
    )
    if task == "forecasting":
        parameters = source.lengths(parameters)
    estimator = kind(**parameters)
    estimator._training_options()  # which refuses what cannot be trained with
    return Start(task, estimator.get_params(deep=False), source)


def default_folder(start: Start) -> Path:
    """As in ``runs/classification-BasicMotions-drop0.3-seed0``."""
    drop = f"-drop{start.source.drop:g}" if start.source.drop else ""
    backbone = start.parameters["backbone"]
    model = "" if backbone == "contiformer" else f"-{backbone}"
    return Path("runs") / f"{start.task}-{start.source.name}{model}{drop}-seed{start.parameters['seed']}"


def _train(start: Start, folder: Path) -> None:
    from contiformer import estimators  # noqa: PLC0415
    from contiformer.cli.run_folder import first_process  # noqa: PLC0415

    kind: type[Estimator] = getattr(estimators, TASKS[start.task])
    estimator: Any = kind(**{**start.parameters, "run_dir": folder})
    training, validation, columns = start.source.training(start.task, start.parameters)
    roles = {"id": columns.id, "time": columns.time, "values": columns.values, "static": columns.static}
    if start.task in ("classification", "regression"):
        roles["label"] = columns.label
    if start.task == "regression":
        roles["targets"] = columns.targets
    if start.source.test is not None and first_process():
        _try_test_data(start)
    if first_process():
        typer.echo(f"{start.task} of {start.source.name}: {len(training):,} series to learn from", err=True)
    try:
        estimator.fit(training, validation_data=validation, **roles)
    except KeyboardInterrupt:
        if first_process():
            _say_how_to_resume(folder)
        raise typer.Exit(INTERRUPTED) from None
    if first_process():
        _conclude(estimator, start, folder)


def _try_test_data(start: Start) -> None:
    """A test file that cannot be read is said before the training, not after it."""
    from contiformer.cli.files import read_file  # noqa: PLC0415
    from contiformer.cli.source import kind_of, share_of  # noqa: PLC0415

    test = start.source.test
    if test is not None and share_of(test) is None and kind_of(test) == "file":
        read_file(Path(test), start.source.columns, duplicates=start.source.duplicates)


def _say_how_to_resume(folder: Path) -> None:
    from contiformer.cli.run_folder import histories  # noqa: PLC0415

    done = histories(folder)
    reached = f"what was learned up to epoch {len(done[-1])} is in {folder}" if done else "no epoch was finished yet"
    command = shlex.join(["contiformer", *sys.argv[1:]])
    typer.echo(f"stopped: {reached}; go on with the same command: {command}", err=True)


def _conclude(estimator: Any, start: Start, folder: Path) -> None:
    from contiformer.cli.metrics import show_metrics  # noqa: PLC0415
    from contiformer.data.readers.text import write_text  # noqa: PLC0415

    for outcome in estimator.outcomes_:
        for message in outcome.messages:
            typer.echo(f"note: {message}", err=True)
    columns = {"validation": estimator.metrics_["validation"]}
    test = start.source.testing(estimator)
    if test is not None:
        columns["test"] = estimator.metrics_["test"] = estimator.evaluate(test)
        write_text(folder / "metrics.json", json.dumps(estimator.metrics_, indent=1))
    epochs, seconds = sum(estimator.metrics_["epochs"]), estimator.metrics_["seconds"]
    show_metrics(f"{start.task} of {start.source.name}, {epochs} epochs, {seconds:.0f} s", columns)
    typer.echo(f"wrote {folder}: model.safetensors, config.json, metrics.json, README.md, history.csv, checkpoints/")
    at = " --at TIMES" if start.task == "interpolation" else ""
    next_steps = [f"contiformer evaluate {folder}"] if test is not None else []
    next_steps += [f"contiformer predict {folder} --input FILE{at}", f"contiformer plot {folder}"]
    typer.echo("next: " + "\n      ".join(next_steps))

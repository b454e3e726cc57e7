"""``contiformer train``: from data to a run folder with a trained model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contiformer.cli import options
from contiformer.cli.commands import INTERRUPTED
from contiformer.data.errors import did_you_mean

if TYPE_CHECKING:
    from contiformer.cli.event_source import EventSource
    from contiformer.cli.run_folder import Start
    from contiformer.cli.source import Source
    from contiformer.estimators import Learner
    from contiformer.estimators.tables import Columns

TASKS = {
    "classification": "Classifier",
    "regression": "Regressor",
    "interpolation": "Interpolator",
    "forecasting": "Forecaster",
    "events": "EventPredictor",
}
#: Options that say nothing about events, and those that say nothing about anything else.
_NOT_FOR_EVENTS = ("label", "static", "targets", "drop")
_ONLY_FOR_EVENTS = ("type", "fold")


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help=", ".join(TASKS))],
    data: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Of `contiformer datasets`, or CSV, Parquet, .ts, ARFF, .jsonl.")
    ],
    id: options.Id = None,
    time: options.Time = None,
    type: options.Type = None,
    values: options.Values = None,
    label: options.Label = None,
    static: options.Static = None,
    targets: options.Targets = None,
    duplicates: options.Duplicates = "error",
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME|SHARE", help="What to test on (default: the test part of a set that has one)."),
    ] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Of a set of events that has several (default: 1).")] = None,
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

      contiformer train events --data MIMIC-II --fold 2

      contiformer train events --data orders.csv --id customer --time date --type product --test 0.2
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
    from contiformer.cli.run_folder import Start  # noqa: PLC0415
    from contiformer.cli.settings import checked, merged, parse_assignments, read_settings  # noqa: PLC0415
    from contiformer.cli.source import Source  # noqa: PLC0415
    from contiformer.tasks.events.build import check_names  # noqa: PLC0415

    if task not in TASKS:
        raise typer.BadParameter(f"there is no task {task!r}; {did_you_mean(task, TASKS)}.", param_hint="TASK")
    for name in _NOT_FOR_EVENTS if task == "events" else _ONLY_FOR_EVENTS:
        if given[name]:
            raise typer.BadParameter(f"{task} has no use for it.", param_hint=f"--{name}")
    kind: type[Learner] = getattr(estimators, TASKS[task])
    settings = {} if given["config"] is None else read_settings(given["config"])
    parameters = checked(kind, settings, f"--config {given['config']}")
    parameters = merged(parameters, checked(kind, parse_assignments(given["assignments"] or ()), "--set"))
    parameters |= {name: given[name] for name in ("backbone", "seed") if given[name] is not None}
    _check_backbone(task, parameters.get("backbone", "contiformer"))
    source: Source | EventSource
    if task == "events":
        source = _event_source(given, parameters.get("seed", 0))
    else:
        source = Source.of(
            given["data"],
            columns=_columns(task, given),
            duplicates=given["duplicates"],
            test=given["test"],
            drop=given["drop"],
            seed=parameters.get("seed", 0),
        )
        if task == "forecasting":
            parameters = source.lengths(parameters)
    estimator: Any = kind(**parameters)
    if task == "events":
        check_names(estimator.backbone, estimator.intensity)
    estimator._training_options()  # which refuses what cannot be trained with
    return Start(task, estimator.get_params(deep=False), source)


def _check_backbone(task: str, name: str) -> None:
    from contiformer.backbones import BACKBONES  # noqa: PLC0415
    from contiformer.tasks.events.build import WHOLE  # noqa: PLC0415

    known = (*BACKBONES, *WHOLE) if task == "events" else BACKBONES
    if name not in known:
        raise typer.BadParameter(
            f"there is no backbone {name!r}; {did_you_mean(name, known)}.", param_hint="--backbone"
        )


def _columns(task: str, given: dict[str, Any]) -> Columns:
    columns = options.columns_from(*(given[name] for name in ("id", "time", "values", "label", "static", "targets")))
    if columns.targets and task != "regression":
        raise typer.BadParameter(
            f"{task} learns the channels themselves; name them in --values.", param_hint="--targets"
        )
    return columns


def _event_source(given: dict[str, Any], seed: int) -> EventSource:
    from contiformer.cli.event_source import EventSource  # noqa: PLC0415
    from contiformer.estimators.event_tables import EventColumns  # noqa: PLC0415

    columns = EventColumns(given["id"], given["time"], given["type"], options.names_in(given["values"]))
    return EventSource.of(given["data"], columns=columns, test=given["test"], fold=given["fold"], seed=seed)


def default_folder(start: Start) -> Path:
    """As in ``runs/classification-BasicMotions-drop0.3-seed0``."""
    backbone = start.parameters["backbone"]
    model = "" if backbone == "contiformer" else f"-{backbone}"
    name = f"{start.task}-{start.source.name}{model}{start.source.variant}-seed{start.parameters['seed']}"
    return Path("runs") / name


def _train(start: Start, folder: Path) -> None:
    from contiformer import estimators  # noqa: PLC0415
    from contiformer.cli.run_folder import first_process  # noqa: PLC0415

    kind: type[Learner] = getattr(estimators, TASKS[start.task])
    estimator: Any = kind(**{**start.parameters, "run_dir": folder})
    training, validation, columns = start.source.training(start.task, start.parameters)
    if start.source.test is not None and first_process():
        _try_test_data(start, training)
    if first_process():
        word = "sequences" if start.task == "events" else "series"
        typer.echo(f"{start.task} of {start.source.name}: {len(training):,} {word} to learn from", err=True)
    try:
        estimator.fit(training, validation_data=validation, **_roles(start.task, columns))
    except KeyboardInterrupt:
        if first_process():
            _say_how_to_resume(folder)
        raise typer.Exit(INTERRUPTED) from None
    if first_process():
        _conclude(estimator, start, folder)


def _roles(task: str, columns: Any) -> dict[str, Any]:
    """The columns as ``fit`` takes them."""
    names = ["id", "time", "type", "features"] if task == "events" else ["id", "time", "values", "static"]
    names += ["label"] if task in ("classification", "regression") else []
    names += ["targets"] if task == "regression" else []
    return {name: getattr(columns, name) for name in names}


def _try_test_data(start: Start, training: Any) -> None:
    """A test file that cannot be read is said before the training, not after it."""
    from contiformer.cli.event_source import EventSource  # noqa: PLC0415
    from contiformer.cli.files import read_file  # noqa: PLC0415
    from contiformer.cli.source import kind_of, share_of  # noqa: PLC0415

    if isinstance(start.source, EventSource):
        start.source.try_test(training)
        return
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
    files = ("model.safetensors", "config.json", "metrics.json", "README.md", "history.csv", "checkpoints/")
    typer.echo(f"wrote {folder}: {', '.join(name for name in files if (folder / name).exists())}")
    at = " --at TIMES" if start.task == "interpolation" else ""
    next_steps = [f"contiformer evaluate {folder}"] if test is not None else []
    next_steps += [f"contiformer predict {folder} --input FILE{at}", f"contiformer plot {folder}"]
    typer.echo("next: " + "\n      ".join(next_steps))

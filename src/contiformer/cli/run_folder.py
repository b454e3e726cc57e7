"""The folder of a run: the options it was started with, its history and its model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from contiformer.cli.source import EventSource, SeriesSource, source_class
from contiformer.data import DataError, read_text, write_text
from contiformer.data.errors import printable
from contiformer.data.files import make_folder
from contiformer.estimators import ESTIMATORS, Learner, load
from contiformer.estimators.store import FORMAT
from contiformer.training.history import read_histories
from contiformer.training.options import RUNTIME_OPTIONS

TASKS: dict[str, type[Learner]] = {kind.task_name: kind for kind in ESTIMATORS.values()}
FILE = "run.json"
#: Parameters that say where and how loudly, not what: a run may go on with others.
_ELSEWHERE = RUNTIME_OPTIONS | {"run_dir"}


@dataclass(frozen=True)
class Start:
    """The options of a run, written before the training begins."""

    task: str
    parameters: dict[str, Any]
    source: SeriesSource | EventSource

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without options that may change when the run goes on."""
        kept = {name: value for name, value in self.parameters.items() if name not in _ELSEWHERE}
        plain = json.loads(json.dumps({"task": self.task, "data": self.source.to_dict(), "parameters": kept}))
        return {"format": FORMAT, **plain}

    def write(self, folder: Path) -> None:
        """Into the folder, which is made."""
        make_folder(folder, remedy="choose another with --output")
        write_text(folder / FILE, json.dumps(self.to_dict(), indent=1))


class DamagedStartError(DataError):
    """``run.json`` cannot be read; what was learned is not lost."""


def read_start(folder: Path) -> Start | None:
    """The options of the run in this folder; None where there is none.

    A damaged file is a DamagedStartError, one of another version another DataError.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        saved = json.loads(read_text(path))
        version = int(saved["format"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _damaged(path, error) from None
    if version != FORMAT:
        other, remedy = ("a newer", "upgrade contiformer") if version > FORMAT else ("an older", "start it again")
        problem = f"the run was started by {other} contiformer (format {version}, this one reads {FORMAT})"
        raise DataError(problem, file=path, remedy=f"{remedy}, or choose another folder")
    try:
        # options that the run's version did not have were at their defaults
        parameters = TASKS[saved["task"]]().to_options() | saved["parameters"]
        return Start(saved["task"], parameters, source_class(saved["task"]).from_dict(saved["data"]))
    except (AttributeError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DamagedStartError:
    problem = f"the description of the run is damaged ({type(error).__name__}: {error})"
    return DamagedStartError(problem, file=path, remedy="repeat its `contiformer train`, which writes it again")


def read_source(folder: Path, task: str) -> SeriesSource | EventSource:
    """The data source of the run in this folder; an empty one where the command line has not written it down."""
    try:
        start = read_start(folder)
    except DamagedStartError as error:
        note(str(error))
        start = None
    return source_class(task)("") if start is None else start.source


def read_given(
    folder: Path,
    estimator: Any,
    data: str,
    *,
    answers: bool,
    label: str | None,
    labels: Path | None,
    type: str | None,
    **columns: Any,
) -> Any:
    """The series or sequences of a data set or file, with labels where it has them; ``answers``: it has to."""
    source: Any = read_source(folder, estimator.task_name)
    if estimator.task_name == "events":
        refuse_options(("--label", label), ("--labels", labels), why="events does not use this option.")
        return source.other(data, estimator, type=type, **columns)
    refuse_options(("--type", type), why=f"{estimator.task_name} does not use this option.")
    if labels is not None:
        columns["labels"] = str(labels.resolve())
    read = source.other if answers or labels is not None else source.inputs
    return read(data, estimator, label=label, **columns)


def refuse_options(*given: tuple[str, Any], why: str) -> None:
    """Refuse options that mean nothing for the model of a run."""
    for option, value in given:
        if value is not None:
            raise typer.BadParameter(why, param_hint=option)


def refuse_without_data(columns: Mapping[str, Any]) -> None:
    """Refuse names of columns that go with ``--data``, which is missing."""
    options = ((f"--{name}", value) for name, value in columns.items())
    refuse_options(*options, why="it says what is in --data, which is missing.")


def refuse_other(folder: Path, saved: Start, now: Start) -> None:
    """Refuse other options than those the run in the folder was started with, naming the differences."""
    before, after = flat(saved.to_dict()), flat(now.to_dict())
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if other:
        named = ", ".join(f"{name} {shown(before.get(name))} (now {shown(after.get(name))})" for name in other)
        remedy = "repeat its options, or choose another folder with --output"
        raise DataError(f"the run in {folder} was started with {named}", remedy=remedy)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by names with dots."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}." if name not in ("data", "parameters") else "")
        else:
            found[f"{prefix}{name}"] = value
    return found


def shown(value: Any) -> str:
    """An option for messages."""
    return "none" if value in (None, [], {}) else str(value)


def is_finished(folder: Path) -> bool:
    """Whether the model is saved; its configuration is written last."""
    return (folder / "config.json").is_file()


def has_checkpoints(folder: Path) -> bool:
    """Whether something was learned that a training can go on from."""
    return any(any(folder.glob(f"{place}checkpoints/*.safetensors")) for place in ("", "member*/"))


def histories(folder: Path) -> list[list[dict[str, float]]]:
    """The metrics of each epoch, see :func:`~contiformer.training.history.read_histories`."""
    return read_histories(folder, note)


def tell_files(source: SeriesSource | EventSource) -> None:
    """Name the data files of ``run.json`` before they are read: in a folder of someone else they may be any."""
    for path in (source.data, source.test_data, getattr(source, "labels", None)):
        if path is not None and Path(path).is_absolute():
            note(f"reading {path}, which {FILE} names")


def note(text: str) -> None:
    """One line on stderr."""
    typer.echo(f"note: {printable(text)}", err=True)


def refuse_unfinished(folder: Path) -> None:
    """Refuse a run whose training has not come to its end."""
    if not is_finished(folder) and histories(folder):
        remedy = "start the same `contiformer train` again: it goes on"
        raise DataError("this run is not finished", file=folder, remedy=remedy)


def load_run(folder: Path) -> Any:
    """The trained model."""
    refuse_unfinished(folder)
    return load(folder)

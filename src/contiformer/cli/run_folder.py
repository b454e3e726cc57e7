"""A run's folder: what it was started with, and what has come of it."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contiformer.cli.event_source import EventSource
from contiformer.cli.source import Source
from contiformer.data.errors import DataError
from contiformer.data.readers.text import read_text, write_text
from contiformer.training.identity import ELSEWHERE

if TYPE_CHECKING:
    from contiformer.estimators import Learner

FILE = "run.json"
FORMAT = 1
#: Parameters that say where and how loudly, not what: a run may go on with others.
_ELSEWHERE = ELSEWHERE | {"run_dir"}


@dataclass(frozen=True)
class Start:
    """What a run was started with: it is written before the training begins."""

    task: str
    parameters: dict[str, Any]
    source: Source | EventSource

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without what may change when the run goes on."""
        kept = {name: value for name, value in self.parameters.items() if name not in _ELSEWHERE}
        plain = json.loads(json.dumps({"task": self.task, "data": self.source.to_dict(), "parameters": kept}))
        return {"format": FORMAT, **plain}

    def write(self, folder: Path) -> None:
        """Into the folder, which is made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"the folder cannot be made ({error.strerror})", file=folder, remedy="choose another with --output"
            ) from None
        write_text(folder / FILE, json.dumps(self.to_dict(), indent=1))


def read_start(folder: Path) -> Start | None:
    """What the run in this folder was started with; None where none was."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        saved = json.loads(read_text(path))
        version = saved["format"]
        if version > FORMAT:
            raise DataError(
                f"the run was started by a newer contiformer (format {version}, this one reads up to {FORMAT})",
                file=path,
                remedy="upgrade contiformer, or choose another folder",
            )
        kind = EventSource if saved["task"] == "events" else Source
        return Start(saved["task"], saved["parameters"], kind.from_dict(saved["data"]))
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"the description of the run is damaged ({error})", file=path, remedy="remove the folder and train again"
        ) from None


def refuse_other(folder: Path, saved: Start, now: Start) -> None:
    """Name what differs between the run in the folder and the one that is asked for."""
    before, after = _flat(saved.to_dict()), _flat(now.to_dict())
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if other:
        named = ", ".join(f"{name} {_shown(before.get(name))} (now {_shown(after.get(name))})" for name in other)
        raise DataError(
            f"the run in {folder} was started with {named}",
            remedy="repeat its options, or choose another folder with --output",
        )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}." if name not in ("data", "parameters") else "")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _shown(value: Any) -> str:
    return "none" if value in (None, [], {}) else str(value)


def is_finished(folder: Path) -> bool:
    """The configuration is what is written last."""
    return (folder / "config.json").is_file()


def histories(folder: Path) -> list[list[dict[str, float]]]:
    """The metrics of each epoch, for each member that has been begun."""
    found = sorted(folder.glob("history.csv")) or sorted(folder.glob("member*/history.csv"))
    return [_history(path) for path in found]


def _history(path: Path) -> list[dict[str, float]]:
    try:
        rows = csv.DictReader(read_text(path).splitlines())
        return [{name: float(value) for name, value in row.items()} for row in rows]
    except (ValueError, TypeError) as error:
        raise DataError(f"the history is damaged ({error})", file=path, remedy="train again") from None


def load_run(folder: Path) -> Learner:
    """The trained model."""
    from contiformer.estimators import Learner  # noqa: PLC0415

    if not is_finished(folder) and histories(folder):
        raise DataError(
            "this run is not finished", file=folder, remedy="start the same `contiformer train` again: it goes on"
        )
    return Learner.load(folder)


def first_process() -> bool:
    """Whether this is the process that writes and speaks, under torchrun, SLURM and Lightning's own launcher."""
    if "RANK" in os.environ:
        return os.environ["RANK"] == "0"
    return all(os.environ.get(name, "0") == "0" for name in ("SLURM_PROCID", "NODE_RANK", "LOCAL_RANK"))

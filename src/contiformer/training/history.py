"""The metrics of every epoch of a run, as its folder has them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from contiformer.data.files import read_text


def read_histories(folder: Path, tell: Callable[[str], None]) -> list[list[dict[str, float]]]:
    """The metrics of each epoch, for each member that has been begun; from its checkpoint where the file is damaged.

    ``tell`` is told of a damaged file.
    """
    members = [folder] if (folder / "checkpoints").is_dir() else sorted(folder.glob("member*"))
    return [rows for rows in (_history(member, tell) for member in members) if rows]


def _history(folder: Path, tell: Callable[[str], None]) -> list[dict[str, float]]:
    path = folder / "history.csv"
    try:
        rows = csv.DictReader(read_text(path).splitlines())
        found = [{name: float(value) for name, value in row.items()} for row in rows]
        if not found or "round" not in found[0]:
            raise ValueError("no epochs are in it")
        return found
    except (ValueError, TypeError) as error:
        from contiformer.training.checkpoints import saved_history  # noqa: PLC0415 - start-up time

        found = saved_history(folder / "checkpoints")
        if path.exists():
            tell(f"{path} is damaged ({error}); " + ("its checkpoint has it, too" if found else "it is left out"))
        return found

"""Which checkpoint to go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contiformer.data.errors import DataError
from contiformer.training.identity import differences
from contiformer.training.tree import DamagedError, read_tree


def find_checkpoint(folder: Path, identity: dict[str, Any], messages: list[str]) -> tuple[Path | None, int]:
    """The newest checkpoint that can be read, and the rounds it has behind it.

    A damaged one is passed over with a message. Where all are, the training starts anew: that costs time, but what
    comes out is the same.

    Raises:
        DataError: the checkpoint is of another training.
    """
    damaged = 0
    for path in (folder / "last.safetensors", folder / "previous.safetensors"):
        try:
            saved = read_tree(path)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            damaged += 1
            messages.append(str(error))
            continue
        if damaged:
            messages.append(f"the checkpoint before it is used instead: {path}")
        states = {key.split("{")[0]: state for key, state in saved["callbacks"].items()}
        other = differences(states["Checkpoints"]["identity"], identity)
        if other:
            raise DataError(
                f"the run in {folder.parent} is another one: it has {', '.join(other)}",
                remedy="resume with the same data and options, or choose another folder",
            )
        return path, len(states["Course"]["history"])
    if damaged:
        messages.append("no other checkpoint is left: the training starts anew")
    return None, 0

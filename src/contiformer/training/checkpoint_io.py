"""Lightning's checkpoints as safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins import CheckpointIO

from contiformer.training.tree import read_tree, write_tree


class TreeIO(CheckpointIO):
    """Reads and writes what Lightning calls a checkpoint with :mod:`contiformer.training.tree`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write atomically."""
        write_tree(path, checkpoint)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Read; tensors arrive on the CPU, and Lightning moves them."""
        tree: dict[str, Any] = read_tree(path)
        return tree

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        Path(path).unlink(missing_ok=True)

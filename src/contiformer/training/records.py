"""What can be read about a training while it runs: ``history.csv`` and, where it is installed, TensorBoard's files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from contiformer.data.readers.text import write_text
from contiformer.training.callbacks import Course


class Records(Callback):
    """One row of the history for each round, on the first process.

    Args:
        course: has the history.
        folder: the run's.
    """

    def __init__(self, course: Course, folder: Path) -> None:
        self.course, self.folder = course, folder
        self._board: Any = None

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Open TensorBoard's file; what an earlier process wrote beyond its checkpoint is out of date."""
        if trainer.is_global_zero:
            self._board = _board(self.folder / "tensorboard", trainer.global_step)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write the history, and the round that has just ended to TensorBoard."""
        if not trainer.is_global_zero:
            return
        write_history(self.course.history, self.folder / "history.csv")
        if self._board is not None:
            row = dict(self.course.history[-1])
            step = row.pop("step")
            for name, value in row.items():
                place = name if name in ("round", "train_loss", "learning_rate") else f"val/{name}"
                self._board.add_scalar(place, value, step)
            self._board.flush()

    def on_train_end(self, *_: Any) -> None:
        """Close."""
        self._close()

    def on_exception(self, *_: Any) -> None:
        """Close."""
        self._close()

    def _close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None


def write_history(history: list[dict[str, float]], path: Path) -> None:
    """As CSV, all or nothing."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in history for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, out.getvalue())


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)

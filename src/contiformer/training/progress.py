"""One bar for the whole training: loss, metric, time left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from contiformer.training.callbacks import Course

if TYPE_CHECKING:
    from contiformer.tasks.base import Task


class Progress(Callback):
    """A bar on a terminal; elsewhere a line at the end."""

    def __init__(self, course: Course, rounds: int, steps: int) -> None:
        self.course, self.rounds, self.steps = course, rounds, steps
        self.bar: Bar | None = None
        self.task = TaskID(0)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Show it, on the first process."""
        if not trainer.is_global_zero:
            return
        self.bar = Bar(
            TextColumn("training"),
            BarColumn(bar_width=24),
            TextColumn("epoch {task.fields[round]}/{task.fields[rounds]}  loss {task.fields[loss]}"),
            TextColumn("{task.fields[metric]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        done = trainer.global_step
        self.task = self.bar.add_task(
            "", total=self.rounds * self.steps, completed=done, round=0, rounds=self.rounds, loss="-", metric=""
        )
        self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, *rest: Any) -> None:
        """One step further."""
        if self.bar is not None:
            self.bar.update(
                self.task,
                completed=trainer.global_step,
                round=trainer.current_epoch + 1,
                loss=f"{float(outputs['loss']):.4g}",
            )

    def on_validation_end(self, trainer: Trainer, module: Task) -> None:  # type: ignore[override]
        """Show the metric that the choice is made by, and its best value."""
        if self.bar is not None:
            now = self.course.history[-1][module.monitor]
            best = self.course.history[self.course.best_round][module.monitor]
            self.bar.update(self.task, metric=f"{module.monitor} {now:.4g} (best {best:.4g})")

    def on_train_end(self, *_: Any) -> None:
        """Take it away."""
        self._stop()

    def on_exception(self, *_: Any) -> None:
        """Give the terminal back."""
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

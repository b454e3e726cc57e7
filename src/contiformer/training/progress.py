"""One bar for the whole training: loss, metric, time left."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from contiformer.training.callbacks import Course

if TYPE_CHECKING:
    from contiformer.tasks.base import Task

#: Columns that the words beside the bar need.
_WORDS = 66
#: At most so many lines where there is no terminal.
_LINES = 10


class Progress(Callback):
    """A bar on a terminal; elsewhere a line now and then. On the first process.

    Args:
        course: has the history.
        rounds: how many there will be, if nothing stops the training early.
        steps: in each of them.
        word: what the user calls a round.
        console: where to show it; standard error by default.
    """

    def __init__(
        self, course: Course, rounds: int, steps: int, word: str = "epoch", console: Console | None = None
    ) -> None:
        self.course, self.rounds, self.steps, self.word = course, rounds, steps, word
        self.console = console or Console(stderr=True)
        self.bar: Bar | None = None
        self.task = TaskID(0)
        self._began, self._first = 0.0, 0

    def say(self, message: str) -> None:
        """One line."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Show the bar."""
        self._began, self._first = time.perf_counter(), len(self.course.history)
        if not (trainer.is_global_zero and self.console.is_terminal):
            return
        self.bar = Bar(
            TextColumn(self.word + " {task.fields[round]}"),
            BarColumn(bar_width=min(30, max(4, self.console.width - _WORDS))),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[metric]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
        )
        self.task = self.bar.add_task(
            "",
            total=self.rounds * self.steps,
            completed=trainer.global_step,
            round=f"{self._first}/{self.rounds}",
            loss="-",
            metric="",
        )
        self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, *rest: Any) -> None:
        """One step further."""
        if self.bar is not None:
            self.bar.update(
                self.task,
                completed=trainer.global_step,
                round=f"{trainer.current_epoch + 1}/{self.rounds}",
                loss=f"{float(outputs['loss']):.4g}",
            )

    def on_validation_end(self, trainer: Trainer, module: Task) -> None:  # type: ignore[override]
        """Show the metric that the choice is made by, and its best value."""
        done, row = len(self.course.history), self.course.history[-1]
        best = self.course.history[self.course.best_round][module.monitor]
        metric = f"val {module.monitor} {row[module.monitor]:.4g} (best {best:.4g})"
        if self.bar is not None:
            self.bar.update(self.task, metric=metric)
        elif trainer.is_global_zero and (self._is_milestone(done) or trainer.should_stop):
            gone = time.perf_counter() - self._began
            left = gone / (done - self._first) * (self.rounds - done)
            times = f"{_clock(gone)} gone" + (
                "" if trainer.should_stop or not left else f", at most {_clock(left)} left"
            )
            self.say(f"{self.word} {done}/{self.rounds}  loss {row['train_loss']:.4g}  {metric}  {times}")

    def _is_milestone(self, done: int) -> bool:
        return done * _LINES // self.rounds > (done - 1) * _LINES // self.rounds

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


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

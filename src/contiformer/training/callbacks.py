"""Lightning callbacks: seeding, signals, weight averaging, history, early stopping, checkpoints, progress."""

from __future__ import annotations

import csv
import io
import math
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor, distributed

from contiformer.data.errors import DataError
from contiformer.data.files import sync_folder, write_text
from contiformer.training.checkpoints import ResumableEpochs
from contiformer.training.lightning_task import LightningTask
from contiformer.training.options import TrainingOptions
from contiformer.training.processes import Halt, StopRequest

#: Checkpoints take at most this share of the time: after short rounds there is none.
CHECKPOINT_SHARE = 0.05
#: Columns that the words beside the bar need.
_WORDS = 66
#: At most so many lines where there is no terminal.
_LINES = 10
#: A validation loss so many times as large as its best is worth a warning.
TENFOLD = 10.0


class StepSeeding(Callback):
    """Random numbers of a step depend on the seed, the step and the process alone: there is no state to restore."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, index: int) -> None:
        """Seed torch, which is where all random numbers of a step come from."""
        words = np.random.SeedSequence([self.seed, trainer.global_step, trainer.global_rank]).generate_state(2)
        seed = int(words[0]) << 32 | int(words[1])
        # torch.manual_seed would prepare for devices that are not there, which takes longer than a small step
        torch.default_generator.manual_seed(seed)
        if module.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif module.device.type == "mps":
            torch.mps.manual_seed(seed)


class StopOnSignal(Callback):
    """Stops on a signal, between two steps, in all processes after the same one."""

    def __init__(self, request: StopRequest) -> None:
        self.request = request
        #: Rounds that no checkpoint holds yet: they are short then, and this one is finished first.
        self.unsaved = False
        self.stopping = False

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Listen again: Lightning has put its own handler of SIGTERM in place, which talks to other processes."""
        self.request.listen()

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Stop if a process was asked to."""
        stop = self.request.stop
        if trainer.world_size > 1:
            everyone = torch.tensor(float(stop), device=module.device)
            distributed.all_reduce(everyone, distributed.ReduceOp.MAX)
            stop = bool(everyone)
        self.stopping = stop
        if stop and not self.unsaved:
            raise Halt


class _Saved(Callback):
    """A callback with attributes that are part of the checkpoint."""

    saved: ClassVar[tuple[str, ...]]

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in self.saved:
            setattr(self, name, state_dict[name])


class WeightAveraging(_Saved):
    """An exponential moving average of the weights, which is validated in their place."""

    saved = ("mean",)

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.mean: dict[str, Tensor] = {}
        self._live: dict[str, Tensor] = {}
        self._aside: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Trainer, module: LightningTask) -> None:  # type: ignore[override]
        """Begin with the first weights, or with the average of the checkpoint."""
        self._live = {name: x.detach() for name, x in module.task.state_dict().items() if isinstance(x, Tensor)}
        self.mean = {name: self.mean.get(name, x).to(x, copy=True) for name, x in self._live.items()}

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Move the average towards the weights: quickly at first."""
        share = max(1 - self.decay, 1 / (trainer.global_step + 1))
        moving = [name for name, x in self._live.items() if x.is_floating_point()]
        torch._foreach_lerp_([self.mean[name] for name in moving], [self._live[name] for name in moving], share)
        for name in self._live.keys() - set(moving):
            self.mean[name].copy_(self._live[name])

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Put the average in the place of the weights."""
        self._aside = _copies(self._live)
        _put(self.mean, self._live)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        _put(self._aside, self._live)
        self._aside = {}


class History(_Saved):
    """A row of losses and metrics for each round; with a folder in ``history.csv`` and TensorBoard's files, too."""

    saved = ("rows",)

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.rows: list[dict[str, float]] = []
        self._loss = self._rate = 0.0
        self._steps = 0
        self._board: Any = None

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Open TensorBoard's file; what an earlier process wrote beyond its checkpoint is out of date."""
        if self.folder is not None and trainer.is_global_zero:
            self._board = _board(self.folder / "tensorboard", trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Remember the learning rate of the step."""
        self._rate = max(float(group["lr"]) for group in trainer.optimizers[0].param_groups)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, *rest: Any) -> None:
        loss = float(outputs["loss"])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} after {trainer.global_step} steps: lower learning_rate, or look for extreme "
                "values in the data"
            )
        self._loss, self._steps = self._loss + loss, self._steps + 1

    def on_validation_end(self, trainer: Trainer, module: LightningTask) -> None:  # type: ignore[override]
        """Write down a row."""
        loss = torch.tensor(self._loss / max(1, self._steps), dtype=torch.float64, device=module.device)
        loss = trainer.strategy.reduce(loss, reduce_op="mean")
        self._loss, self._steps = 0.0, 0
        row = {"round": len(self.rows), "step": trainer.global_step, "train_loss": float(loss)}
        self.rows.append(row | {"learning_rate": self._rate} | module.validation_metrics)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write the file, and the last row to TensorBoard."""
        if self.folder is None or not trainer.is_global_zero:
            return
        self.write()
        if self._board is not None:
            row = dict(self.rows[-1])
            step = row.pop("step")
            for name, value in row.items():
                place = name if name in ("round", "train_loss", "learning_rate") else f"val/{name}"
                self._board.add_scalar(place, value, step)
            self._board.flush()

    def write(self) -> None:
        """Write ``history.csv`` atomically."""
        assert self.folder is not None
        out = io.StringIO()
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "history.csv", out.getvalue())

    def on_train_end(self, *_: Any) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()
            self._board = None

    on_exception = on_train_end  # type: ignore[assignment]


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


class EarlyStopping(_Saved):
    """Keeps the averaged weights of the best round (or of the last), and stops when there is no improvement.

    A warning where validation becomes much worse is added to ``messages``.
    """

    saved = ("best_round", "best")

    def __init__(
        self,
        options: TrainingOptions,
        rounds: int,
        averaging: WeightAveraging,
        history: History,
        messages: list[str] | None = None,
    ) -> None:
        self.options, self.rounds, self.averaging, self.history = options, rounds, averaging, history
        self.messages = [] if messages is None else messages
        self.diverged = False
        self.best_round = -1
        self.best: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """A training that was killed after its last round is over."""
        self._consider_stopping(trainer)

    def on_validation_end(self, trainer: Trainer, module: LightningTask) -> None:  # type: ignore[override]
        """Keep the weights if they are the best so far."""
        task = module.task
        if self.options.keep == "last" or self._is_better(task.monitor, task.mode):
            self.best_round = len(self.history.rows) - 1
            self.best = _copies(self.averaging.mean)
        if task.mode == "min" and trainer.is_global_zero:
            self._consider_warning(task.monitor)
        self._consider_stopping(trainer)

    def _is_better(self, monitor: str, mode: str) -> bool:
        score = self.history.rows[-1][monitor]
        known = self.history.rows[self.best_round][monitor] if self.best_round >= 0 else math.nan
        if math.isnan(known):
            return self.best_round < 0 or not math.isnan(score)
        return score > known if mode == "max" else score < known

    def _consider_warning(self, monitor: str) -> None:
        scores = [row[monitor] for row in self.history.rows]
        best = min((score for score in scores if not math.isnan(score)), default=math.nan)
        # a log-likelihood may be near zero: more than one nat as well
        if self.diverged or not (scores[-1] > TENFOLD * abs(best) and scores[-1] > best + 1):
            return
        self.diverged = True
        self.messages.append(
            f"the validation {monitor} rose from {best:.4g} (epoch {scores.index(best) + 1}) to {scores[-1]:.4g} "
            f"(epoch {len(scores)}): look for extreme values in the data, or lower learning_rate"
        )
        warnings.warn(self.messages[-1], stacklevel=2)

    def _consider_stopping(self, trainer: Trainer) -> None:
        waited = len(self.history.rows) - 1 - self.best_round
        if self.options.patience < 1 and waited >= max(1, round(self.options.patience * self.rounds)):
            trainer.should_stop = True


class Checkpoints(Callback):
    """After a round the whole state goes to ``last.safetensors``, the one before to ``previous.safetensors``.

    A round that ends soon after a checkpoint gets none, see :data:`CHECKPOINT_SHARE`, unless it is the last one. Where
    the training was ``restored`` from another than the last one, that is damaged, and must not become the previous one.
    """

    def __init__(
        self,
        folder: Path,
        epochs: ResumableEpochs,
        fingerprint: dict[str, Any],
        restored: Path | None,
        signals: StopOnSignal,
    ) -> None:
        self.folder, self.epochs, self.fingerprint, self.signals = folder, epochs, fingerprint, signals
        self._restored = "" if restored is None else restored.name
        self._intact = self._restored == "last.safetensors"
        self._due = 0.0

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """All processes have to go on from the same checkpoint."""
        if trainer.strategy.broadcast(self._restored) != self._restored:
            raise DataError(
                f"process {trainer.global_rank} does not see the checkpoints that the first one sees",
                file=self.folder,
                remedy="put the run folder on a disk that all machines share",
            )

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Remove the partial files of a killed process."""
        if trainer.is_global_zero:
            for partial in (*self.folder.glob(".*.partial"), *self.folder.parent.glob(".*.partial")):
                partial.unlink(missing_ok=True)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write, on the first process; all of them have to take part."""
        over = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs or self.signals.stopping
        began = time.perf_counter()
        if not trainer.strategy.broadcast(over or began >= self._due):
            self.signals.unsaved = True
            return
        self.signals.unsaved = False
        new, last, previous = (self.folder / f"{name}.safetensors" for name in ("new", "last", "previous"))
        # beside the others first: a full disk costs neither of them
        trainer.save_checkpoint(new)
        if trainer.is_global_zero:
            if self._intact and last.exists():
                last.replace(previous)
            new.replace(last)
            sync_folder(self.folder)
        self._intact = True
        now = time.perf_counter()
        self._due = now + (now - began) / CHECKPOINT_SHARE
        if self.signals.stopping:
            raise Halt

    def state_dict(self) -> dict[str, Any]:
        """The run's fingerprint, and the position in the data."""
        return {"fingerprint": self.fingerprint, "epochs": self.epochs.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the next batch."""
        self.epochs.go_to(state_dict["epochs"])


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in tensors.items()}


def _put(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, x in target.items():
        x.copy_(source[name])


class ProgressBar(Callback):
    """A bar on a terminal; elsewhere a line now and then. On the first process, by default on standard error.

    There are ``steps`` in each of ``rounds``, if nothing stops the training early; ``word`` is the user's for a round.
    """

    def __init__(
        self, stopping: EarlyStopping, rounds: int, steps: int, word: str = "epoch", console: Console | None = None
    ) -> None:
        self.stopping, self.rounds, self.steps, self.word = stopping, rounds, steps, word
        self.console = console or Console(stderr=True)
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self._began, self._first = 0.0, 0

    def say(self, message: str) -> None:
        """One line."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._began, self._first = time.perf_counter(), len(self.stopping.history.rows)
        if not (trainer.is_global_zero and self.console.is_terminal):
            return
        self.bar = Progress(
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
        if self.bar is not None:
            self.bar.update(
                self.task,
                completed=trainer.global_step,
                round=f"{trainer.current_epoch + 1}/{self.rounds}",
                loss=f"{float(outputs['loss']):.4g}",
            )

    def on_validation_end(self, trainer: Trainer, module: LightningTask) -> None:  # type: ignore[override]
        """Show the metric that the choice is made by, and its value in the round that is kept so far."""
        rows, monitor = self.stopping.history.rows, module.task.monitor
        done, row = len(rows), rows[-1]
        best = f"best {rows[self.stopping.best_round][monitor]:.4g}"
        # the last round is kept whatever its metric: there is no best one to name
        metric = f"val {monitor} {row[monitor]:.4g} ({'keeps last' if self.stopping.options.keep == 'last' else best})"
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
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    on_exception = on_train_end  # type: ignore[assignment]


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

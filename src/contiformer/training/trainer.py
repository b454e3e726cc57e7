"""One function that trains any task."""

from __future__ import annotations

import csv
import io
import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, Trainer

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.loader import Loader
from contiformer.data.readers.text import write_text
from contiformer.data.series_set import SeriesSet
from contiformer.training.callbacks import Checkpoints, Course, Patience, Seeding
from contiformer.training.checkpoint_io import TreeIO
from contiformer.training.identity import identity_of
from contiformer.training.interrupt import Interrupted, listening
from contiformer.training.options import TrainingOptions
from contiformer.training.progress import Progress
from contiformer.training.rounds import Rounds
from contiformer.training.tree import DamagedError, read_tree

if TYPE_CHECKING:
    from contiformer.tasks.base import Task

#: At most so many series in a batch that is only looked at.
EVALUATION_BATCH = 128


@dataclass(frozen=True)
class Outcome:
    """How a training went.

    Attributes:
        history: a row of metrics for each round.
        best_round: the one whose weights were kept.
        seconds: of this call; a resumed training does not count what went before.
        resumed: rounds that were done before.
        interrupted: the user stopped it.
        messages: what a user should know, such as a damaged checkpoint.
    """

    history: list[dict[str, float]]
    best_round: int
    seconds: float
    resumed: int
    interrupted: bool
    messages: list[str]


def train(
    task: Task,
    training: SeriesSet | EventSet,
    validation: SeriesSet | EventSet,
    options: TrainingOptions,
    folder: Path | None = None,
) -> Outcome:
    """Train until the epochs are done or validation stops improving, and leave the best weights in the task.

    With a folder the state is saved after every round, and a training that finds one goes on from it; what comes out is
    what an uninterrupted training gives, to the bit.

    Args:
        task: what to learn.
        training: series, scaled.
        validation: series to choose by; not empty.
        options: how.
        folder: for checkpoints, ``history.csv`` and logs; None: nothing is written.

    Raises:
        Interrupted: by Ctrl-C, with a folder to resume from. Without one the training ends early.
    """
    if not len(training) or not len(validation):
        raise DataError("there is nothing to train or to validate on", remedy="give more series")
    began = time.perf_counter()
    loader = Loader(training, options.batch_for(len(training)), seed=options.seed, num_workers=options.num_workers)
    rounds = Rounds(loader)
    steps = options.epochs_for(len(loader)) * len(loader)
    count = -(-steps // len(rounds))
    task.plan(options, count * len(rounds))
    course = Course(options, count)
    messages: list[str] = []
    checkpoint = None
    resumed = 0
    with listening() as wish, _quiet():
        callbacks: list[Callback] = [Seeding(options.seed), course, Patience(wish)]
        if folder is not None:
            identity = identity_of(options, training, validation, task)
            callbacks.append(Checkpoints(folder / "checkpoints", identity))
            callbacks.append(_HistoryFile(course, folder / "history.csv"))
            checkpoint, resumed = find_checkpoint(folder / "checkpoints", identity, messages)
        if options.verbose:
            callbacks.append(Progress(course, count, len(rounds)))
        trainer = make_trainer(options, count, callbacks, folder)
        checking = Loader(validation, EVALUATION_BATCH, shuffle=False)
        interrupted = False
        try:
            trainer.fit(task, rounds, checking, ckpt_path=checkpoint, weights_only=False)
        except Interrupted:
            if folder is not None or not course.best:
                raise
            interrupted = True
    if course.best:
        task.load_state_dict(course.best)
    task.eval()
    return Outcome(course.history, course.best_round, time.perf_counter() - began, resumed, interrupted, messages)


def make_trainer(options: TrainingOptions, rounds: int, callbacks: list[Callback], folder: Path | None) -> Trainer:
    """Lightning's Trainer, configured; under ``torchrun`` it joins the processes that torchrun started."""
    devices, nodes, strategy = options.devices, options.num_nodes, "auto"
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    several = nodes > 1 or (isinstance(devices, int) and devices > 1)
    accelerator = options.accelerator
    if accelerator == "auto" and not torch.cuda.is_available():
        # mps has no float64, which times need; it has to be asked for
        accelerator = "cpu"
    if accelerator == "cpu" and devices == "auto":
        devices = 1
    if several:
        from lightning.pytorch.strategies import DDPStrategy  # noqa: PLC0415

        strategy = DDPStrategy(broadcast_buffers=False)  # type: ignore[assignment]
    return Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=options.precision or _precision(accelerator),  # type: ignore[arg-type]
        max_epochs=rounds,
        callbacks=callbacks,
        plugins=[TreeIO()],
        gradient_clip_val=options.gradient_clip or None,
        logger=_logger(folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=None if folder is None else str(folder),
        log_every_n_steps=1,
    )


def find_checkpoint(folder: Path, identity: dict[str, Any], messages: list[str]) -> tuple[str | None, int]:
    """The newest checkpoint that can be read, and the rounds it has behind it."""
    for name in ("last.safetensors", "previous.safetensors"):
        path = folder / name
        if not path.exists():
            continue
        try:
            saved = read_tree(path)
        except DamagedError as error:
            messages.append(f"{error}; the checkpoint before it is used instead")
            continue
        states = {key.split("{")[0]: state for key, state in saved["callbacks"].items()}
        other = [key for key, value in identity.items() if states["Checkpoints"]["identity"].get(key) != value]
        if other:
            raise DataError(
                f"the run in {folder.parent} was started with other {' and '.join(other)}",
                remedy="resume with the same data and options, or choose another folder",
            )
        return str(path), len(states["Course"]["history"])
    return None, 0


class _HistoryFile(Callback):
    """The history as CSV, written anew after every round."""

    def __init__(self, course: Course, path: Path) -> None:
        self.course, self.path = course, path

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """Write, on the first process."""
        if trainer.is_global_zero:
            out = io.StringIO()
            writer = csv.DictWriter(out, self.course.history[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.course.history)
            write_text(self.path, out.getvalue())


def _logger(folder: Path | None) -> Any:
    """TensorBoard's files in the run folder, where it is installed."""
    if folder is None:
        return False
    try:
        from lightning.pytorch.loggers import TensorBoardLogger  # noqa: PLC0415

        return TensorBoardLogger(str(folder), name="tensorboard", version="")
    except ModuleNotFoundError:
        return False


def _precision(accelerator: str) -> str:
    good = accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bf16-mixed" if good else "32-true"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's own remarks: what matters is said by us."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            for module in (r"lightning\.", r"torch\.optim\.lr_scheduler"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

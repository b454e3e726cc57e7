"""One function that trains any task."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from lightning.pytorch import Callback, Trainer

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.training.allocation import keep_freed_memory
from contiformer.training.callbacks import Checkpoints, Course, Patience, Seeding
from contiformer.training.checkpoint_io import TreeIO
from contiformer.training.finding import find_checkpoint
from contiformer.training.identity import identity_of
from contiformer.training.interrupt import Halt, Interrupted, listening
from contiformer.training.options import TrainingOptions
from contiformer.training.progress import Progress
from contiformer.training.quiet import quiet
from contiformer.training.records import Records, write_history
from contiformer.training.rounds import Rounds

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

    With a folder the state is saved after rounds, and a training that finds one goes on from it; what comes out is
    what an uninterrupted training gives, to the bit.

    Args:
        task: what to learn.
        training: series, scaled.
        validation: series to choose by; not empty.
        options: how.
        folder: for checkpoints, ``history.csv`` and logs; None: nothing is written.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, with a folder to resume from. Without one the training ends early.
        DataError: the folder has a checkpoint of another training.
        FloatingPointError: the loss is no number.
    """
    if not len(training) or not len(validation):
        raise DataError("there is nothing to train or to validate on", remedy="give more series")
    began = time.perf_counter()
    keep_freed_memory()
    options = options.keeping(len(validation))
    batch_size = options.batch_for(len(training))
    loader = Loader(training, batch_size, seed=options.seed, num_workers=options.num_workers, shared=True)
    checking = Loader(validation, EVALUATION_BATCH, shuffle=False, shared=True)
    rounds = Rounds(loader)
    count = -(-options.epochs_for(len(loader)) * len(loader) // len(rounds))
    task.plan(options, count * len(rounds))
    course = Course(options, count)
    progress = Progress(course, count, len(rounds), "epoch" if len(rounds) == len(loader) else "round")
    messages: list[str] = []
    checkpoint, resumed, interrupted = None, 0, False
    with listening() as wish, quiet(), torch.random.fork_rng(devices=[]):
        patience = Patience(wish)
        callbacks: list[Callback] = [Seeding(options.seed), course, patience]
        if folder is not None:
            place, identity = folder / "checkpoints", identity_of(options, training, validation, task)
            checkpoint, resumed = find_checkpoint(place, identity, messages)
            callbacks += [Records(course, folder), Checkpoints(place, rounds, identity, checkpoint, patience)]
        if options.verbose:
            callbacks.append(progress)
        trainer = make_trainer(options, count, callbacks, folder)
        if options.verbose and trainer.is_global_zero:
            for message in messages + ([f"going on after {progress.word} {resumed}"] if resumed else []):
                progress.say(message)
        try:
            trainer.fit(task, rounds, checking, ckpt_path=checkpoint, weights_only=False)
        except Halt:
            if wish.at_once:
                raise
            if folder is not None or not course.best:
                again = "" if folder is None else f"; the same call with {folder} goes on"
                raise Interrupted(f"stopped after {len(course.history)} of {count} {progress.word}s{again}") from None
            interrupted = True
        if folder is not None and trainer.is_global_zero:
            write_history(course.history, folder / "history.csv")
    if course.best:
        task.load_state_dict(course.best)
    # the task is kept for long, and the trainer knows the training data
    task.trainer = None
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
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=None if folder is None else str(folder),
    )


def _precision(accelerator: str) -> str:
    good = accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bf16-mixed" if good else "32-true"

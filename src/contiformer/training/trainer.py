"""One function that trains any task."""

from __future__ import annotations

import ctypes
import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.warnings import PossibleUserWarning

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.tasks.base import Task
from contiformer.training.callbacks import (
    Checkpoints,
    EarlyStopping,
    History,
    ProgressBar,
    StepSeeding,
    StopOnSignal,
    WeightAveraging,
)
from contiformer.training.checkpoints import ResumableEpochs, SafetensorsIO, find_checkpoint, fingerprint_of
from contiformer.training.lightning_task import LightningTask
from contiformer.training.options import EVALUATION_BATCH, TrainingOptions, TrainingOutcome
from contiformer.training.processes import Halt, Interrupted, alone_in, listening

#: Parameters of mallopt, see malloc.h. Freed memory up to the first size is kept, blocks up to the second come from it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGEST_BLOCK = 2**30, 2**25


@cache
def keep_freed_memory() -> bool:
    """Tell glibc not to return memory to the system after each step, once for the process.

    A page that comes back from the system is cleared and mapped again at its first use, which takes longer than using
    it. Returns whether the allocator is glibc's: those of other systems are left as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK))


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Leave out Lightning's messages and warnings; all other warnings come through."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=PossibleUserWarning)
            for module in (r"lightning\.", r"torch\.optim\.lr_scheduler"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def train(
    task: Task,
    training: SeriesSet | EventSet,
    validation: SeriesSet | EventSet,
    options: TrainingOptions,
    folder: Path | None = None,
) -> TrainingOutcome:
    """Train until the epochs are done or validation stops improving, and leave the best weights in the task.

    With a folder the state is saved after rounds, and a training that finds one goes on from it; what comes out is
    what an uninterrupted training gives, to the bit.

    Args:
        task: the model with its loss.
        training, validation: scaled series to learn from and to choose by; neither is empty.
        options: those that are not set have general defaults.
        folder: for checkpoints, ``history.csv`` and logs; None: nothing is written.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, with a folder to resume from. Without one the training ends early.
        DataError: the folder has a checkpoint of another training, or another process trains there.
        FloatingPointError: the loss is no number.
    """
    if not len(training) or not len(validation):
        raise DataError("there are no series to train or to validate on", remedy="give more series")
    began = time.perf_counter()
    keep_freed_memory()
    options = options.with_defaults().keeping(len(validation))
    batch_size = options.batch_for(len(training))
    loader = Loader(training, batch_size, seed=options.seed, num_workers=options.num_workers, shared=True)
    checking = Loader(validation, EVALUATION_BATCH, shuffle=False, shared=True)
    epochs = ResumableEpochs(loader)
    rounds = -(-options.epochs_for(len(loader)) * len(loader) // len(epochs))
    module = LightningTask(task, options, rounds * len(epochs))
    messages: list[str] = []
    averaging, history = WeightAveraging(options.averaging), History(folder)
    stopping = EarlyStopping(options, rounds, averaging, history, messages)
    progress = ProgressBar(stopping, rounds, len(epochs), "epoch" if len(epochs) == len(loader) else "round")
    checkpoint, resumed, interrupted = None, 0, False
    with alone_in(folder), listening() as request, quiet_lightning(), torch.random.fork_rng(devices=[]):
        signals = StopOnSignal(request)
        # in this order: after a validation the weights are put back, the row is written, and the best weights are kept
        callbacks: list[Callback] = [StepSeeding(options.seed), averaging, history, stopping, signals]
        if folder is not None:
            place, fingerprint = folder / "checkpoints", fingerprint_of(options, training, validation, task)
            checkpoint, resumed = find_checkpoint(place, fingerprint, messages)
            callbacks.append(Checkpoints(place, epochs, fingerprint, checkpoint, signals))
        if options.verbose:
            callbacks.append(progress)
        trainer = make_trainer(options, rounds, callbacks, folder)
        if options.verbose and trainer.is_global_zero:
            for message in messages + ([f"going on after {progress.word} {resumed}"] if resumed else []):
                progress.say(message)
        try:
            trainer.fit(module, epochs, checking, ckpt_path=checkpoint, weights_only=False)
        except Halt:
            if request.at_once:
                raise
            if folder is not None or not stopping.best:
                again = "" if folder is None else f"; the same call with {folder} goes on"
                raise Interrupted(f"stopped after {len(history.rows)} of {rounds} {progress.word}s{again}") from None
            interrupted = True
        if folder is not None and trainer.is_global_zero:
            history.write()
    if stopping.best:
        task.load_state_dict(stopping.best)
    task.eval()
    seconds = time.perf_counter() - began
    return TrainingOutcome(history.rows, stopping.best_round, seconds, resumed, interrupted, messages)


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
        strategy = DDPStrategy(broadcast_buffers=False)  # type: ignore[assignment]
    return Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=options.precision or _precision(accelerator),  # type: ignore[arg-type]
        max_epochs=rounds,
        callbacks=callbacks,
        plugins=[SafetensorsIO()],
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

"""What happens around the steps of a training: seeding, averaging, choosing, stopping, checkpoints."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, distributed

from contiformer.data.errors import DataError
from contiformer.training.interrupt import Halt, Wish
from contiformer.training.options import TrainingOptions
from contiformer.training.rounds import Rounds

if TYPE_CHECKING:
    from contiformer.tasks.base import Task

#: Checkpoints take at most this share of the time: after short rounds there is none.
CHECKPOINT_SHARE = 0.05


class Seeding(Callback):
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


class Patience(Callback):
    """Stops when the user asks for it, between two steps, in all processes after the same one."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        #: Rounds that no checkpoint holds yet: they are short then, and this one is finished first.
        self.unsaved = False
        self.stopping = False

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Listen again: Lightning has put its own handler of SIGTERM in place, which talks to other processes."""
        self.wish.listen()

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Look whether there was a wish to stop."""
        stop = self.wish.stop
        if trainer.world_size > 1:
            everyone = torch.tensor(float(stop), device=module.device)
            distributed.all_reduce(everyone, distributed.ReduceOp.MAX)
            stop = bool(everyone)
        self.stopping = stop
        if stop and not self.unsaved:
            raise Halt


class Course(Callback):
    """The running mean of the weights, which is what is validated; the history; the best weights; when to stop.

    Everything it knows is part of the checkpoint.
    """

    def __init__(self, options: TrainingOptions, rounds: int) -> None:
        self.options, self.rounds = options, rounds
        self.history: list[dict[str, float]] = []
        self.best_round = -1
        self.best: dict[str, Tensor] = {}
        self.mean: dict[str, Tensor] = {}
        self._live: dict[str, Tensor] = {}
        self._aside: dict[str, Tensor] = {}
        self._loss = self._rate = 0.0
        self._steps = 0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """The mean begins with the first weights; a training that was killed after its last round is over."""
        self._live = {name: x.detach() for name, x in module.state_dict().items() if isinstance(x, Tensor)}
        self.mean = {name: self.mean.get(name, x).to(x, copy=True) for name, x in self._live.items()}
        self._consider_stopping(trainer)

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Remember the learning rate of the step."""
        self._rate = max(float(group["lr"]) for group in trainer.optimizers[0].param_groups)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, *rest: Any) -> None:
        """Move the mean towards the weights: quickly at first."""
        count = trainer.global_step
        loss = float(outputs["loss"])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} after {count} steps: lower learning_rate, or look for extreme values in the data"
            )
        self._loss, self._steps = self._loss + loss, self._steps + 1
        share = max(1 - self.options.averaging, 1 / (count + 1))
        moving = [name for name, x in self._live.items() if x.is_floating_point()]
        torch._foreach_lerp_([self.mean[name] for name in moving], [self._live[name] for name in moving], share)
        for name in self._live.keys() - set(moving):
            self.mean[name].copy_(self._live[name])

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Put the mean in the place of the weights."""
        self._aside = _copies(self._live)
        _put(self.mean, self._live)

    def on_validation_end(self, trainer: Trainer, module: Task) -> None:  # type: ignore[override]
        """Write down the metrics, keep the weights if they are the best so far, and put the others back."""
        _put(self._aside, self._live)
        self._aside = {}
        loss = torch.tensor(self._loss / max(1, self._steps), dtype=torch.float64, device=module.device)
        loss = trainer.strategy.reduce(loss, reduce_op="mean")
        self._loss, self._steps = 0.0, 0
        row = {"round": len(self.history), "step": trainer.global_step, "train_loss": float(loss)}
        row |= {"learning_rate": self._rate} | module.validation_metrics
        self.history.append(row)
        if self.options.keep == "last" or self._is_better(row[module.monitor], module):
            self.best_round = len(self.history) - 1
            self.best = _copies(self.mean)
        self._consider_stopping(trainer)

    def _is_better(self, score: float, module: Task) -> bool:
        known = self.history[self.best_round][module.monitor] if self.best_round >= 0 else math.nan
        if math.isnan(known):
            return self.best_round < 0 or not math.isnan(score)
        return score > known if module.mode == "max" else score < known

    def _consider_stopping(self, trainer: Trainer) -> None:
        waited = len(self.history) - 1 - self.best_round
        if self.options.patience < 1 and waited >= max(1, round(self.options.patience * self.rounds)):
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"history": self.history, "best_round": self.best_round, "best": self.best, "mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Back from the checkpoint."""
        for name, value in state_dict.items():
            setattr(self, name, value)


class Checkpoints(Callback):
    """After a round the whole state in ``last.safetensors``, and the one before in ``previous.safetensors``.

    A round that ends soon after a checkpoint gets none, see :data:`CHECKPOINT_SHARE`, unless it is the last one.

    Args:
        folder: where the files are.
        rounds: know where in the data they are.
        identity: what the training was started with: a checkpoint of another one is refused.
        restored: the checkpoint that the training goes on from. If that is not the last one, the last one is damaged,
            and must not take the place of the previous one.
        patience: knows whether the user asked to stop.
    """

    def __init__(
        self, folder: Path, rounds: Rounds, identity: dict[str, Any], restored: Path | None, patience: Patience
    ) -> None:
        self.folder, self.rounds, self.identity, self.patience = folder, rounds, identity, patience
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
        """Clear away what a killed process was writing."""
        if trainer.is_global_zero:
            for partial in self.folder.glob(".*.partial"):
                partial.unlink(missing_ok=True)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write, on the first process; all of them have to take part."""
        over = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs or self.patience.stopping
        began = time.perf_counter()
        if not trainer.strategy.broadcast(over or began >= self._due):
            self.patience.unsaved = True
            return
        self.patience.unsaved = False
        new, last, previous = (self.folder / f"{name}.safetensors" for name in ("new", "last", "previous"))
        # beside the others first: a full disk costs neither of them
        trainer.save_checkpoint(new)
        if trainer.is_global_zero:
            if self._intact and last.exists():
                last.replace(previous)
            new.replace(last)
        self._intact = True
        now = time.perf_counter()
        self._due = now + (now - began) / CHECKPOINT_SHARE
        if self.patience.stopping:
            raise Halt

    def state_dict(self) -> dict[str, Any]:
        """What the training was started with, and where in the data it is."""
        return {"identity": self.identity, "rounds": self.rounds.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the next batch."""
        self.rounds.go_to(state_dict["rounds"])


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in tensors.items()}


def _put(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, x in target.items():
        x.copy_(source[name])

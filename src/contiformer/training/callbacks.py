"""What happens around the steps of a training: seeding, averaging, choosing, keeping the history, checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from contiformer.training.interrupt import Interrupted, Wish
from contiformer.training.options import TrainingOptions

if TYPE_CHECKING:
    from contiformer.tasks.base import Task


class Seeding(Callback):
    """Random numbers of a step depend on the seed, the step and the process alone: there is no state to restore."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, index: int) -> None:
        """Seed torch, which is where all random numbers of a step come from."""
        words = np.random.SeedSequence([self.seed, trainer.global_step, trainer.global_rank]).generate_state(2)
        torch.manual_seed(int(words[0]) << 32 | int(words[1]))


class Patience(Callback):
    """Stops when the user asks for it, between two steps."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *rest: Any) -> None:
        """Look whether there was a wish to stop."""
        if self.wish.stop:
            raise Interrupted


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
        self._aside: dict[str, Tensor] = {}
        self._loss = 0.0
        self._steps = 0

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """The mean begins with the first weights, on the device of the model."""
        weights = _weights(module)
        self.mean = {name: self.mean.get(name, x).to(x).clone() for name, x in weights.items()}
        self.best = {name: x.to(weights[name]) for name, x in self.best.items()}

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, *rest: Any) -> None:
        """Move the mean towards the weights: quickly at first."""
        count = trainer.global_step
        share = max(1 - self.options.averaging, 1 / (count + 1))
        with torch.no_grad():
            for name, x in _weights(module).items():
                if x.is_floating_point():
                    self.mean[name].lerp_(x, share)
                else:
                    self.mean[name].copy_(x)
        loss = float(outputs["loss"])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} after {count} steps: lower learning_rate, or look for extreme values in the data"
            )
        self._loss, self._steps = self._loss + loss, self._steps + 1

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Put the mean in the place of the weights."""
        self._aside = {name: x.clone() for name, x in _weights(module).items()}
        _set_weights(module, self.mean)

    def on_validation_end(self, trainer: Trainer, module: Task) -> None:  # type: ignore[override]
        """Write down the metrics, keep the weights if they are the best so far, and put the others back."""
        _set_weights(module, self._aside)
        self._aside = {}
        loss = trainer.strategy.reduce(torch.tensor(self._loss / max(1, self._steps)), reduce_op="mean")
        self._loss, self._steps = 0.0, 0
        row = {"round": float(len(self.history)), "step": float(trainer.global_step), "train_loss": float(loss)}
        row |= module.validation_metrics
        self.history.append(row)
        score = row[module.monitor]
        known = self.history[self.best_round][module.monitor] if self.best_round >= 0 else math.nan
        better = score > known if module.mode == "max" else score < known
        if self.options.keep == "last" or self.best_round < 0 or better:
            self.best_round = len(self.history) - 1
            self.best = {name: x.clone() for name, x in self.mean.items()}
        self._consider_stopping(trainer)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """A training that was killed right after its last round is over."""
        self._consider_stopping(trainer)

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
    """After every round the whole state in ``last.safetensors``, and the one before in ``previous.safetensors``."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder, self.identity = folder, identity

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write, on the first process; all of them have to take part."""
        last, previous = self.folder / "last.safetensors", self.folder / "previous.safetensors"
        if trainer.is_global_zero and last.exists():
            last.replace(previous)
        trainer.save_checkpoint(last)

    def state_dict(self) -> dict[str, Any]:
        """What the training was started with: a checkpoint of another one is refused."""
        return {"identity": self.identity}


def _weights(module: LightningModule) -> dict[str, Tensor]:
    return {name: x.detach() for name, x in module.state_dict().items() if isinstance(x, Tensor)}


def _set_weights(module: LightningModule, weights: dict[str, Tensor]) -> None:
    module.load_state_dict(weights)

"""A task as Lightning trains it: steps, validation over all processes, optimiser and schedule."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from numpy.typing import NDArray
from torch import Tensor, distributed

from contiformer.tasks.base import Task, as_float64
from contiformer.training.options import TrainingOptions


class LightningTask(LightningModule):
    """A LightningModule around a task, which any Lightning Trainer can fit.

    Args:
        task: the model with its loss and metrics.
        options: of optimiser and schedule; all set.
        total_steps: length of the schedule.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.tasks import Classification, InputOptions, Inputs
        >>> from contiformer.training import LightningTask, TrainingOptions
        >>> inputs = Inputs(InputOptions(channels=2))
        >>> task = Classification(make_backbone("contiformer", inputs.size, d_model=16), inputs, classes=3)
        >>> module = LightningTask(task, TrainingOptions(learning_rate=1e-3), total_steps=100)
    """

    def __init__(self, task: Task, options: TrainingOptions, total_steps: int) -> None:
        super().__init__()
        self.task, self.options, self.total_steps = task, options, total_steps
        self.validation_metrics: dict[str, float] = {}
        self._judged: dict[str, list[NDArray[Any]]] = defaultdict(list)

    def training_step(self, batch: Any, index: int) -> Tensor:
        """The mean loss over the batches of all processes."""
        total, weight = self.task.loss_terms(batch)
        total = total + self.task.further_loss(batch)
        weight = weight.detach().clone()
        if distributed.is_available() and distributed.is_initialized():
            # gradients are averaged over the processes, so the weights have to be, too
            distributed.all_reduce(weight)
            weight = weight / distributed.get_world_size()
        return total / weight.clamp(min=torch.finfo(weight.dtype).tiny)

    def on_validation_epoch_start(self) -> None:
        self._judged.clear()

    def validation_step(self, batch: Any, index: int) -> None:
        if batch.weight is not None and not batch.weight.any():
            # a process without a share, see Loader
            return
        for name, value in self.task.judge(batch).items():
            self._judged[name].append(as_float64(value))

    def on_validation_epoch_end(self) -> None:
        """Metrics over the validation series of all processes."""
        judged = {name: np.concatenate(parts) for name, parts in self._judged.items()}
        self._judged.clear()
        if distributed.is_available() and distributed.is_initialized():
            everyone: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(everyone, judged)
            names = next(part for part in everyone if part)
            judged = {name: np.concatenate([part[name] for part in everyone if part]) for name in names}
        self.validation_metrics = self.task.metrics(judged)
        self.log_dict(self.validation_metrics, batch_size=1, rank_zero_only=True)

    def configure_optimizers(self) -> Any:
        """AdamW with warm-up and schedule; vector fields learn slower, and only matrices decay."""
        options = self.options
        groups = defaultdict(list)
        for name, parameter in self.task.named_parameters():
            rate = self.task.rate_of(name, options.field_rate)
            decay = self.task.decay_of(name, parameter, options.weight_decay)
            groups[rate, decay].append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": parameters, "lr": options.learning_rate * rate, "weight_decay": decay}
                for (rate, decay), parameters in sorted(groups.items())
            ],
            betas=(0.9, 0.98),
            fused=self._fused() or None,
        )
        warm = max(1.0, options.warmup * self.total_steps)

        def schedule(step: int) -> float:
            gone = 0.0 if options.schedule == "constant" else min(1.0, step / max(1, self.total_steps))
            return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * gone)) / 2

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _fused(self) -> bool:
        """Whether one operation updates all parameters, which is faster on a CPU.

        With mixed precision Lightning refuses to clip gradients for such an optimiser.
        """
        mixed = self._trainer is not None and "mixed" in str(self._trainer.precision)
        return self.device.type == "cpu" and not mixed

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch.to(device)

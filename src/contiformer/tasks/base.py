"""What all tasks share: an optimiser, and metrics over whole sets."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from numpy.typing import NDArray
from torch import Tensor, distributed

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.tasks.inputs import Inputs
from contiformer.training.options import TrainingOptions

Judged = dict[str, NDArray[Any]]


class Task(LightningModule):
    """A model with a loss and metrics: a LightningModule that any Trainer can fit.

    A subclass says what a batch costs (:meth:`loss_terms`), what is to be known of a batch for the metrics
    (:meth:`judge`), and what they are (:meth:`metrics`), computed once over everything that was judged, so that they do
    not depend on how series were batched. ``monitor`` is the metric to choose by.
    """

    monitor: ClassVar[str] = "loss"
    mode: ClassVar[str] = "min"

    def __init__(self) -> None:
        super().__init__()
        self.options, self.total_steps = TrainingOptions(), 1
        self.validation_metrics: dict[str, float] = {}
        self._judged: dict[str, list[NDArray[Any]]] = defaultdict(list)

    def plan(self, options: TrainingOptions, total_steps: int) -> None:
        """How to train, and for how many steps in all."""
        self.options, self.total_steps = options, total_steps

    @abstractmethod
    def loss_terms(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Sum of the losses of a batch, and of their weights; for training only, so random hiding belongs here."""

    def further_loss(self, batch: Any) -> Tensor | float:
        """What the model itself adds to the loss of a batch, beside :meth:`loss_terms`."""
        return 0.0

    @abstractmethod
    def judge(self, batch: Any) -> dict[str, Tensor]:
        """What :meth:`metrics` needs of each series (or of each batch), to be joined along the first dimension."""

    @abstractmethod
    def metrics(self, judged: Judged) -> dict[str, float]:
        """Figures over everything that was judged, among them the one named ``monitor``."""

    def training_step(self, batch: Any, index: int) -> Tensor:
        """The mean loss over the batches of all processes."""
        total, weight = self.loss_terms(batch)
        total = total + self.further_loss(batch)
        weight = weight.detach().clone()
        if distributed.is_available() and distributed.is_initialized():
            # gradients are averaged over the processes, so the weights have to be, too
            distributed.all_reduce(weight)
            weight = weight / distributed.get_world_size()
        return total / weight.clamp(min=torch.finfo(weight.dtype).tiny)

    def on_validation_epoch_start(self) -> None:
        """Forget what was judged before."""
        self._judged.clear()

    def validation_step(self, batch: Any, index: int) -> None:
        """Collect."""
        if batch.weight is not None and not batch.weight.any():
            # a process without a share, see Loader
            return
        for name, value in self.judge(batch).items():
            self._judged[name].append(_as_numbers(value))

    def on_validation_epoch_end(self) -> None:
        """Metrics over the validation series of all processes."""
        judged = {name: np.concatenate(parts) for name, parts in self._judged.items()}
        self._judged.clear()
        if distributed.is_available() and distributed.is_initialized():
            everyone: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(everyone, judged)
            names = next(part for part in everyone if part)
            judged = {name: np.concatenate([part[name] for part in everyone if part]) for name in names}
        self.validation_metrics = self.metrics(judged)
        self.log_dict(self.validation_metrics, batch_size=1, rank_zero_only=True)

    @torch.no_grad()
    def evaluate(self, batches: Any) -> dict[str, float]:
        """Metrics over an iterable of batches, in this process."""
        self.eval()
        parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
        for batch in batches:
            for name, value in self.judge(batch.to(self.device)).items():
                parts[name].append(_as_numbers(value))
        return self.metrics({name: np.concatenate(values) for name, values in parts.items()})

    def calibrate(self, batches: Any) -> None:
        """Adjust what the validation series tell about the model's certainty; nothing by default."""

    def rate_of(self, name: str) -> float:
        """Share of the learning rate for a parameter."""
        return self.options.field_rate if "_field." in name else 1.0

    def decay_of(self, name: str, parameter: Tensor) -> float:
        """Weight decay of a parameter."""
        return self.options.weight_decay if parameter.dim() > 1 else 0.0

    def _one_pass(self) -> bool:
        """Whether the optimizer takes all parameters at once, instead of a dozen small operations for each.

        On a CPU that pays. With mixed precision Lightning refuses to clip gradients for such an optimizer.
        """
        mixed = self._trainer is not None and "mixed" in str(self._trainer.precision)
        return self.device.type == "cpu" and not mixed

    def configure_optimizers(self) -> Any:
        """AdamW with warm-up and cosine; vector fields learn slower, and only matrices decay."""
        options = self.options
        groups = defaultdict(list)
        for name, parameter in self.named_parameters():
            groups[self.rate_of(name), self.decay_of(name, parameter)].append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": parameters, "lr": options.learning_rate * rate, "weight_decay": decay}
                for (rate, decay), parameters in sorted(groups.items())
            ],
            betas=(0.9, 0.98),
            fused=self._one_pass() or None,
        )
        warm = max(1.0, options.warmup * self.total_steps)

        def rate(step: int) -> float:
            gone = min(1.0, step / max(1, self.total_steps))
            return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * gone)) / 2

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Batches know how to move."""
        return batch.to(device)


class SeriesTask(Task):
    """A task on series: a backbone on described inputs.

    Args:
        backbone: from a batch to states.
        inputs: what the backbone is shown of a batch.
    """

    def __init__(self, backbone: Backbone, inputs: Inputs) -> None:
        super().__init__()
        self.backbone, self.inputs = backbone, inputs

    def states(self, batch: Batch, query_times: Tensor | None = None) -> Float[Tensor, "batch query d"]:
        """What the backbone makes of a batch."""
        return self.backbone(self.inputs(batch), query_times)

    def further_loss(self, batch: Batch) -> Tensor | float:
        """Of backbones that have one, such as the KL term of a latent variable."""
        extra = self.backbone.extra_loss()
        return 0.0 if extra is None else (extra * series_weights(batch)).sum()


def _as_numbers(value: Tensor) -> NDArray[np.float64]:
    """In float64, on the CPU first, because not every device has it."""
    return value.detach().cpu().double().numpy()


def series_weights(batch: Batch) -> Float[Tensor, " batch"]:
    """How much each series counts."""
    return batch.values.new_ones(len(batch)) if batch.weight is None else batch.weight.to(batch.values)

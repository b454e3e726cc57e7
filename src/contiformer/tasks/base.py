"""The base classes of tasks: a loss, and metrics over whole sets."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.tasks.inputs import Inputs

Judged = dict[str, NDArray[Any]]


class Task(nn.Module):
    """A model with a loss and metrics; :class:`~contiformer.training.LightningTask` trains it.

    A subclass says what a batch costs (:meth:`loss_terms`), what the metrics need of a batch (:meth:`judge`), and what
    they are (:meth:`metrics`), computed once over everything that was judged, so that they do not depend on how series
    were batched. ``monitor`` is the metric to choose by.

    Example:
        >>> from torch import nn, tensor
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import Task
        >>> class Constant(Task):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.level = nn.Parameter(tensor(0.0))
        ...     def loss_terms(self, batch):
        ...         return (batch.label - self.level).square().sum(), tensor(float(len(batch)))
        ...     def judge(self, batch):
        ...         return {"miss": batch.label - self.level}
        ...     def metrics(self, judged):
        ...         return {"loss": float((judged["miss"] ** 2).mean())}
        >>> Constant().evaluate([collate([Series.of([0], [[1.0]], label=5.0)])])
        {'loss': 25.0}
    """

    monitor: ClassVar[str] = "loss"
    mode: ClassVar[str] = "min"

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @abstractmethod
    def loss_terms(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Sum of the losses of a batch, and of their weights; for training only, so augmentation belongs here."""

    def further_loss(self, batch: Any) -> Tensor | float:
        """A further loss of the model itself, such as a KL term, beside :meth:`loss_terms`."""
        return 0.0

    @abstractmethod
    def judge(self, batch: Any) -> dict[str, Tensor]:
        """Tensors that :meth:`metrics` needs of each series (or of each batch), joined along the first dimension."""

    @abstractmethod
    def metrics(self, judged: Judged) -> dict[str, float]:
        """Figures over everything that was judged, among them the one named ``monitor``."""

    def evaluate(self, batches: Any) -> dict[str, float]:
        """Metrics over an iterable of batches, in this process."""
        return self.metrics(self.judged(batches))

    @torch.no_grad()
    def judged(self, batches: Any) -> Judged:
        """Sums that :meth:`metrics` needs, a row for each series."""
        self.eval()
        parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
        for batch in batches:
            for name, value in self.judge(batch.to(self.device)).items():
                parts[name].append(as_float64(value))
        return {name: np.concatenate(values) for name, values in parts.items()}

    def calibrate(self, batches: Any) -> None:
        """Adjust the model's certainty to the validation series; nothing by default."""

    def rate_of(self, name: str, field_rate: float) -> float:
        """Share of the learning rate for a parameter; ``field_rate`` is that of vector fields."""
        return field_rate if "_field." in name else 1.0

    def decay_of(self, name: str, parameter: Tensor, weight_decay: float) -> float:
        """Weight decay of a parameter: matrices only."""
        return weight_decay if parameter.dim() > 1 else 0.0


class SeriesTask(Task):
    """A task on series: a backbone on described inputs.

    Args:
        backbone: from a batch to states.
        inputs: assembles the input of the backbone from a batch.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import InputOptions, Inputs, SeriesTask
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = SeriesTask(make_backbone("contiformer", inputs.size, d_model=16), inputs)
        >>> task.states(collate([Series.of([0, 1], [[1.0], [2.0]])])).shape
        torch.Size([1, 2, 16])
    """

    def __init__(self, backbone: Backbone, inputs: Inputs) -> None:
        super().__init__()
        self.backbone, self.inputs = backbone, inputs

    def states(self, batch: Batch, query_times: Tensor | None = None) -> Float[Tensor, "batch query d"]:
        """States of the backbone for a batch."""
        return self.backbone(self.inputs(batch), query_times)

    def further_loss(self, batch: Batch) -> Tensor | float:
        """The backbone's own loss, such as the KL term of a latent variable."""
        extra = self.backbone.extra_loss()
        return 0.0 if extra is None else (extra * series_weights(batch)).sum()


def as_float64(value: Tensor) -> NDArray[np.float64]:
    """A tensor as an array; on the CPU first, because not every device has float64."""
    return value.detach().cpu().double().numpy()


def series_weights(batch: Batch) -> Float[Tensor, " batch"]:
    """The weight of each series."""
    return batch.values.new_ones(len(batch)) if batch.weight is None else batch.weight.to(batch.values)

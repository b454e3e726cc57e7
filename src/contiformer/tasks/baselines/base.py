"""The base class of baselines: a task that is fitted at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from contiformer.data.batch import Batch
from contiformer.data.loader import Loader
from contiformer.data.scaling import Origin, Scaling
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.tasks.base import Judged, Task, as_float64, series_weights
from contiformer.tasks.scores import best_temperature, classification_scores, regression_scores

#: Series in a batch.
BATCH = 128


class DirectTask(Task):
    """A task that is fitted at once, without gradients; what it learns is kept in buffers, saved like any weights.

    Example:
        >>> from contiformer.data import Series, SeriesSet
        >>> from contiformer.tasks.baselines import make_baseline
        >>> data = SeriesSet([Series.of([0, 1], [[n], [-n]], label=n) for n in (-2.0, -1.0, 1.0, 2.0)])
        >>> task = make_baseline("boosting", channels=1)
        >>> sorted(task.fit(data, data, refit=False, seed=0))
        ['mae', 'mse', 'r2', 'rmse']
    """

    #: The tasks of estimators that it does, and the fields of their description of the task that it takes.
    tasks: ClassVar[frozenset[str]]
    described: ClassVar[tuple[str, ...]]
    citation: ClassVar[str]

    @classmethod
    @abstractmethod
    def check(cls, name: str, task: str, schema: Schema) -> None:
        """Reject tasks and data that it cannot do."""

    @classmethod
    def origin(cls, data: SeriesSet, usual: Origin) -> Origin:
        """The origin of the clock for these training data, where the estimator's is ``usual``."""
        return usual

    @classmethod
    def describe(cls, data: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        """Options that the training data decide, for JSON; those that a user gives come on top."""
        return {}

    @abstractmethod
    def fit(self, training: SeriesSet, validation: SeriesSet, *, refit: bool, seed: int) -> dict[str, float]:
        """Fit to the scaled series, calibrate, and return the metrics of series that were held out.

        Args:
            training, validation: scaled series with answers.
            refit: the validation series may be learned from as well.
            seed: of random choices.
        """

    def loss_terms(self, batch: Any) -> tuple[Tensor, Tensor]:
        raise TypeError(f"{type(self).__name__} is fitted at once and has no training loop: call fit")


class Baseline(DirectTask):
    """A classifier or a regressor of whole series that is fitted without gradients.

    Args:
        channels, static: the numbers of channels and of static features.
        classes: how many, None for a regression.
        class_weights: one for each class.
        mean, std: of the training labels of a regression.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    described: ClassVar[tuple[str, ...]] = ("classes", "class_weights", "mean", "std")
    temperature: Tensor

    def __init__(
        self,
        *,
        channels: int,
        static: int = 0,
        classes: int | None = None,
        class_weights: list[float] | None = None,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> None:
        super().__init__()
        self.channels, self.static, self.classes, self.class_weights = channels, static, classes, class_weights
        self.mean, self.std = mean, std
        self.monitor = "mse" if classes is None else "loss"  # type: ignore[misc]
        self.register_buffer("temperature", torch.ones((), dtype=torch.float64))

    @classmethod
    def check(cls, name: str, task: str, schema: Schema) -> None:
        if task not in cls.tasks or schema.targets:
            raise ValueError(f"{name!r} gives one answer for each series, and none at times")

    @property
    def outputs(self) -> int:
        """Numbers for each series: one for each class, or one."""
        return self.classes or 1

    @property
    def device(self) -> torch.device:
        return self.temperature.device

    @abstractmethod
    def features(self, batch: Batch) -> Float[Tensor, "batch features"]:
        """The features of each series, the same at fitting and at predicting."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "batch outputs"]:
        """Logits, not yet divided by the temperature, or the scaled number."""

    def table(self, data: SeriesSet) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
        """Features, labels (scaled numbers or the numbers of classes) and weights of labelled series."""
        rows, labels, weights = [], [], []
        for batch in Loader(data, BATCH, shuffle=False):
            assert isinstance(batch, Batch)
            assert batch.label is not None
            rows.append(self.features(batch.to(self.device)).cpu().numpy())
            labels.append(batch.label.numpy())
            weights.append(as_float64(series_weights(batch)))
        y, w = np.concatenate(labels), np.concatenate(weights)
        if self.class_weights is not None:
            w = w * np.asarray(self.class_weights)[y]
        return np.concatenate(rows), (y - self.mean) / self.std if self.classes is None else y, w

    def metrics_of(self, scores: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
        """Set the temperature by the scores [n, outputs] of series that were held out, and return their metrics."""
        if self.classes is not None:
            logits = torch.as_tensor(scores, dtype=torch.float64)
            self.temperature.fill_(best_temperature(logits, torch.as_tensor(labels)))
        return self.metrics(self.judged_by(scores, labels))

    def judged_by(self, scores: NDArray[Any], labels: NDArray[Any]) -> Judged:
        """Inputs of the metrics, from scores [n, outputs] and labels as in :meth:`table`."""
        if self.classes is None:
            return {"miss": (scores[:, 0] - labels) * self.std, "label": labels * self.std + self.mean}
        logits = torch.as_tensor(scores, dtype=torch.float64)
        return {"probability": (logits / self.temperature.cpu()).softmax(-1).numpy(), "label": labels}

    def probabilities(self, batch: Batch) -> Float[Tensor, "batch classes"]:
        """Calibrated probabilities."""
        return (self(batch) / self.temperature).softmax(-1)

    def values(self, batch: Batch) -> Float[Tensor, " batch"]:
        """The number, in the units of the labels."""
        return self(batch)[:, 0].cpu().double() * self.std + self.mean

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.label is not None
        if self.classes is None:
            return {"miss": self.values(batch) - batch.label.cpu().double(), "label": batch.label}
        return {"probability": self.probabilities(batch), "label": batch.label}

    def metrics(self, judged: Judged) -> dict[str, float]:
        """Metrics of :class:`~contiformer.tasks.Classification` or of :class:`~contiformer.tasks.Regression`."""
        if self.classes is None:
            return regression_scores(judged["miss"], judged["label"])
        return classification_scores(judged["probability"], judged["label"].astype(np.int64))

    @torch.no_grad()
    def calibrate(self, batches: Any) -> None:
        """The temperature of these series."""
        parts = [(self(moved), moved.label) for moved in (batch.to(self.device) for batch in batches)]
        self.metrics_of(*(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)))

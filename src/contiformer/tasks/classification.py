"""Classification of series."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.data.series_set import SeriesSet
from contiformer.tasks.augmentation import Augmentation
from contiformer.tasks.base import Judged, SeriesTask, series_weights
from contiformer.tasks.baselines.base import Baseline
from contiformer.tasks.baselines.boosting import BoostedSummaries
from contiformer.tasks.baselines.rocket import RocketBeside
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.pooling import PooledHead, PoolingKind
from contiformer.tasks.scores import best_temperature, classification_scores

#: Models beside a network, and the penalty in nats on a weight of 0 or 1 against one half: where shapes tell classes
#: apart there are often too few validation series to find the best weight.
BESIDE: dict[str, tuple[type[Baseline], float]] = {"boosting": (BoostedSummaries, 0.0), "rocket": (RocketBeside, 2.0)}
#: Weights of that model that :meth:`Classification.calibrate` tries.
SHARES = tuple(n / 20 for n in range(21))


class Classification(SeriesTask):
    """Probabilities of classes from the pooled states of a series.

    With ``beside``, gradient boosting on summary statistics or random convolutions stand beside the network: logits are
    a weighted mean of both.

    Args:
        backbone, inputs: see :class:`SeriesTask`.
        classes: how many.
        pooling, summaries, moments, dropout: see :class:`PooledHead`.
        class_weights: one for each class, in the loss.
        label_smoothing: share of the probability that is spread over all classes in the loss.
        beside: the ``name`` of the model beside the network, "boosting" or "rocket", and its options, or None.
        augmentation: of the training series: the fields of :class:`Augmentation`.

    After training :meth:`calibrate` finds, on the validation series, the temperature that the logits are divided by and
    the weight of the model beside the network.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import Classification, InputOptions, Inputs
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = Classification(make_backbone("contiformer", inputs.size, d_model=16), inputs, classes=3)
        >>> task.probabilities(collate([Series.of([0, 1], [[1.0], [2.0]])])).shape
        torch.Size([1, 3])
    """

    monitor: ClassVar[str] = "loss"
    mode: ClassVar[str] = "min"
    temperature: Tensor
    share: Tensor

    def __init__(
        self,
        backbone: Backbone,
        inputs: Inputs,
        *,
        classes: int,
        pooling: PoolingKind = "learned",
        summaries: bool = False,
        moments: tuple[list[float], list[float]] | None = None,
        dropout: float = 0.2,
        class_weights: list[float] | None = None,
        label_smoothing: float = 0.0,
        augmentation: dict[str, Any] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, inputs)
        if class_weights is not None and len(class_weights) != classes:
            raise ValueError(f"class_weights has {len(class_weights)} numbers for {classes} classes")
        self.head = PooledHead(
            backbone.d_model,
            inputs.options,
            classes,
            pooling=pooling,
            summaries=summaries,
            moments=moments,
            dropout=dropout,
        )
        self.class_weights = None if class_weights is None else list(class_weights)
        self.label_smoothing, self.augmentation = label_smoothing, Augmentation(**(augmentation or {}))
        self.register_buffer("temperature", torch.ones(()))
        self.beside: Baseline | None = None
        self.penalty = 0.0
        if beside is not None:
            options = {"channels": inputs.options.channels, "static": inputs.options.static, **beside}
            kind, self.penalty = BESIDE[options.pop("name")]
            self.beside = kind(**options, classes=classes, class_weights=class_weights)
            self.register_buffer("share", torch.zeros(()))

    def fit_beside(self, training: SeriesSet, validation: SeriesSet, seed: int) -> None:
        """Fit the model beside the network, if there is one."""
        if self.beside is not None:
            self.beside.fit(training, validation, refit=False, seed=seed)

    def forward(self, batch: Batch, seen: Batch | None = None) -> Float[Tensor, "batch classes"]:
        """Logits, not yet divided by the temperature.

        In training these are the network's, and ``seen`` is what its backbone sees of the batch.
        """
        shown = self.inputs(batch if seen is None else seen)
        logits = self.head(self.backbone(shown), shown, batch)
        if self.beside is None or seen is not None:
            return logits
        return logits.lerp(self.beside(batch).to(logits), self.share)

    def probabilities(self, batch: Batch) -> Float[Tensor, "batch classes"]:
        """Calibrated probabilities."""
        return (self(batch) / self.temperature).softmax(-1)

    def loss_terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.label is not None
        logits = self(batch, self.augmentation(batch))
        each = cross_entropy(logits, batch.label, reduction="none", label_smoothing=self.label_smoothing)
        weight = series_weights(batch)
        if self.class_weights is not None:
            weight = weight * torch.tensor(self.class_weights, device=weight.device)[batch.label]
        return (weight * each).sum(), weight.sum()

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.label is not None
        return {"probability": self.probabilities(batch), "label": batch.label}

    def metrics(self, judged: Judged) -> dict[str, float]:
        """Accuracy, mean negative log-likelihood, calibration error; for two classes AUROC and average precision."""
        return classification_scores(judged["probability"], judged["label"].astype(np.int64))

    @torch.no_grad()
    def calibrate(self, batches: Any) -> None:
        """Set the temperature, and the weight of the model beside the network, by the validation series."""
        self.eval()
        parts, labels = [], []
        for moved in (batch.to(self.device) for batch in batches):
            assert moved.label is not None
            labels.append(moved.label)
            # given what it sees, the network answers alone
            alone = self(moved, moved)
            parts.append((alone,) if self.beside is None else (alone, self.beside(moved).to(alone)))
        network, *other = (torch.cat(part).double() for part in zip(*parts, strict=True))
        truth, best = torch.cat(labels), torch.inf
        for share in SHARES if other else SHARES[:1]:
            logits = network.lerp(other[0], share) if other else network
            temperature = best_temperature(logits, truth)
            prior = self.penalty * (2 * share - 1) ** 2 / len(truth)
            loss = float(cross_entropy(logits / temperature, truth)) + prior
            if loss < best:
                best = loss
                self.temperature.fill_(temperature)
                if other:
                    self.share.fill_(share)

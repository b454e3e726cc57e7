"""A number for a whole series."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.tasks.augmentation import Augmentation
from contiformer.tasks.base import Judged, SeriesTask, series_weights
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.pooling import PooledHead, PoolingKind
from contiformer.tasks.scores import regression_scores


class Regression(SeriesTask):
    """One number from the pooled states of a series, in units of the training labels' standard deviation.

    (Numbers at every time of a series are :class:`~contiformer.tasks.AtTimes` with a target series.)

    Args:
        backbone, inputs: see :class:`SeriesTask`.
        mean, std: of the training labels.
        pooling, summaries, moments, dropout: see :class:`PooledHead`.
        augmentation: of the training series: the fields of :class:`Augmentation`.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import InputOptions, Inputs, Regression
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = Regression(make_backbone("contiformer", inputs.size, d_model=16), inputs)
        >>> task(collate([Series.of([0, 1], [[1.0], [2.0]])])).shape
        torch.Size([1])
    """

    monitor: ClassVar[str] = "mse"
    mode: ClassVar[str] = "min"

    def __init__(
        self,
        backbone: Backbone,
        inputs: Inputs,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        pooling: PoolingKind = "learned",
        summaries: bool = False,
        moments: tuple[list[float], list[float]] | None = None,
        dropout: float = 0.2,
        augmentation: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, inputs)
        self.head = PooledHead(
            backbone.d_model, inputs.options, 1, pooling=pooling, summaries=summaries, moments=moments, dropout=dropout
        )
        self.augmentation = Augmentation(**(augmentation or {}))
        self.mean, self.std = mean, std

    def forward(self, batch: Batch, seen: Batch | None = None) -> Float[Tensor, " batch"]:
        """The number, scaled; ``seen`` is what the backbone sees of the batch in training."""
        shown = self.inputs(batch if seen is None else seen)
        return self.head(self.backbone(shown), shown, batch).squeeze(-1)

    def values(self, batch: Batch) -> Float[Tensor, " batch"]:
        """The number, in the units of the labels."""
        return self(batch).cpu().double() * self.std + self.mean

    def _scaled_label(self, batch: Batch) -> Tensor:
        assert batch.label is not None
        # in float64, which not every device has: a label may be large beside the labels' spread
        return ((batch.label.cpu().double() - self.mean) / self.std).to(batch.values)

    def loss_terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        weight = series_weights(batch)
        miss = self(batch, self.augmentation(batch)) - self._scaled_label(batch)
        return (weight * miss.square()).sum(), weight.sum()

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Errors in the units of the labels, and the labels."""
        assert batch.label is not None
        return {"miss": self.values(batch) - batch.label.cpu().double(), "label": batch.label}

    def metrics(self, judged: Judged) -> dict[str, float]:
        """MSE, RMSE, MAE and R²."""
        return regression_scores(judged["miss"], judged["label"])

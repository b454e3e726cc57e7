"""Predicting values at any times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone
from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from contiformer.nn.local_features import around
from contiformer.tasks.augmentation import Augmentation
from contiformer.tasks.base import Judged, SeriesTask, Task, series_weights
from contiformer.tasks.heads import INSIDE_90, Distribution, Reads, ValueHead, ValueLaw, gaussian_loss, masked_sums
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.scores import error_scores

_AROUND = 5


class ValueTask(Task):
    """Values at the times of a target series, judged and calibrated by a law of each channel.

    A subclass has a ``head`` and maps a batch and query times to the numbers of its law.
    """

    monitor: ClassVar[str] = "score"
    mode: ClassVar[str] = "min"
    head: ValueLaw

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Sums of errors for each series and channel."""
        times, values, known = targets_of(batch)
        said = self(batch, times)
        miss = self.head.location(said) - values
        loss = self.head.losses(said, values)
        std = self.head.std(said)
        if std is not None:
            loss = gaussian_loss(self.head.location(said), std, values)

        def total(x: Tensor) -> Tensor:
            return torch.where(known, x, 0.0).double().sum(1)

        judged = {
            "squares": total(miss.square()),
            "absolutes": total(miss.abs()),
            "loss": total(loss),
            "count": known.double().sum(1),
        }
        if std is not None:
            judged["inside90"] = total(((miss / std).abs() <= INSIDE_90).double())
        return judged

    def metrics(self, judged: Judged) -> dict[str, float]:
        """Errors in scaled units; "score" is the head's own loss, or its negative log-likelihood."""
        # nothing judged is not perfect
        count = float(judged["count"].sum()) or math.nan
        scores = {"score": float(judged["loss"].sum()) / count}
        scores |= error_scores(judged["squares"], judged["absolutes"], judged["count"])
        if "inside90" in judged:
            scores["nll"] = scores["score"]
            scores["coverage90"] = float(judged["inside90"].sum()) / count
        return scores

    @torch.no_grad()
    def calibrate(self, batches: Any) -> None:
        """Make the standard deviations right, as far as one factor can."""
        if self.head.law != "gaussian":
            return
        self.eval()
        deviations = []
        for batch in batches:
            moved = batch.to(self.device)
            times, values, known = targets_of(moved)
            said = self(moved, times)
            std = self.head.std(said)
            assert std is not None
            deviations.append(((self.head.location(said) - values).abs() / std)[known].cpu())
        self.head.calibrate(torch.cat(deviations))


class AtTimes(ValueTask, SeriesTask):
    """Values of a target series at its times: the common part of interpolation, forecasting and regression in time.

    Args:
        backbone, inputs: see :class:`SeriesTask`.
        outputs: channels of the target.
        law, quantiles, smallest_std, reads: see :class:`ValueHead`.
        from_observed: the target's channels are the observed ones, so the answer starts from the line between a
            channel's neighbouring observations and is told how far they are.
        ask: times of the target that a step asks for, at most; None: all of them.
        augmentation: of the training series: the fields of :class:`Augmentation`.

    Example:
        >>> import torch
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> from contiformer.tasks import AtTimes, InputOptions, Inputs
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = AtTimes(make_backbone("contiformer", inputs.size, d_model=16), inputs, outputs=2)
        >>> task(collate([Series.of([0, 1], [[1.0], [2.0]])]), torch.tensor([[0.2, 0.5, 3.0]])).shape
        torch.Size([1, 3, 2, 1])
    """

    head: ValueHead

    def __init__(
        self,
        backbone: Backbone,
        inputs: Inputs,
        *,
        outputs: int,
        law: Distribution = "point",
        quantiles: tuple[float, ...] = (),
        smallest_std: Sequence[float] | None = None,
        reads: Reads = "hidden",
        from_observed: bool = False,
        ask: int | None = 32,
        augmentation: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, inputs)
        self.from_observed, self.ask = from_observed, ask
        self.augmentation = Augmentation(**(augmentation or {}))
        if self.augmentation.warp > 0:
            raise ValueError("warp must be 0 where answers are asked for at times: it would move them")
        if from_observed:
            self.beside = nn.Linear(3 * outputs, backbone.d_model)
            nn.init.zeros_(self.beside.weight)
        features = _AROUND if from_observed else 0
        shape: dict[str, Any] = {"law": law, "quantiles": quantiles, "reads": reads, "smallest_std": smallest_std}
        self.head = ValueHead(backbone.d_model, outputs, features, **shape)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query channels numbers"]:
        states = self.states(batch, query_times)
        if not self.from_observed:
            return self.head(states)
        line, gaps, has = around(batch.values, batch.times, batch.observed, query_times)
        spacing = self.inputs.options.spacing
        near = (gaps / spacing).log1p() * has
        features = torch.cat([line.unsqueeze(-1), near, has.to(line.dtype)], dim=-1)
        # what all channels are at that time, and how sure that is
        beside = torch.cat([line, *(has / (1 + near)).unbind(-1)], dim=-1)
        return self.head(states + self.beside(beside), features, line)

    def loss_terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        times, values, known = targets_of(batch)
        if self.ask is not None and times.shape[1] > self.ask:
            # some of the times, for every series of the batch: they are cheaper than all, and teach nearly as much
            some = torch.randperm(times.shape[1], device=times.device)[: self.ask].sort().values
            times, values, known = times[:, some], values[:, some], known[:, some]
        said = self(self.augmentation(batch), times)
        return masked_sums(self.head.losses(said, values), known, series_weights(batch))


def targets_of(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Times, values and marks of the target series."""
    if batch.target_times is None or batch.target_values is None or batch.target_observed is None:
        raise DataError("the series have no target", remedy="give target_times and target_values")
    return batch.target_times, batch.target_values, batch.target_observed

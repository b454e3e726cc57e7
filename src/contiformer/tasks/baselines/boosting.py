"""Gradient boosting on summary statistics of each channel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from contiformer.data.batch import Batch
from contiformer.data.scaling import Scaling
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.data.statistics import summary_statistics
from contiformer.nn.summaries import channel_summaries
from contiformer.paths.tables import traced
from contiformer.tasks.baselines.base import Baseline

#: Validation series from which early stopping can tell anything; with fewer there are ``FEW_TREES`` of them.
ENOUGH, FEW_TREES = 50, 100
#: Series from which on there are enough for slower learning, on a random fifth of the features at each split.
MANY = 2000
SLOWLY: dict[str, Any] = {"learning_rate": 0.03, "max_iter": 500, "l2_regularization": 5.0, "max_features": 0.2}
#: The logit of a class that no training series has.
UNSEEN = -20.0


class Boosting(Baseline):
    """Histogram gradient boosting (scikit-learn's) on :func:`~contiformer.data.summary_statistics`.

    The number of trees is chosen by the validation series; the final trees are fitted to all series. They are stored as
    arrays, and followed here.

    Args:
        learning_rate, max_iter, max_leaf_nodes, l2_regularization, min_samples_leaf, max_features: see
            ``sklearn.ensemble.HistGradientBoostingClassifier``. :meth:`describe` has their defaults for larger data.
        (all others): see :class:`Baseline`.
    """

    citation: ClassVar[str] = "Ke et al., LightGBM, NeurIPS 2017 (scikit-learn's implementation)"
    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    branches: Tensor
    leaf_values: Tensor
    start: Tensor
    depth: Tensor

    def __init__(
        self,
        *,
        learning_rate: float = 0.05,
        max_iter: int = 400,
        max_leaf_nodes: int = 15,
        l2_regularization: float = 1.0,
        min_samples_leaf: int = 20,
        max_features: float = 1.0,
        **shape: Any,
    ) -> None:
        super().__init__(**shape)
        self.settings: dict[str, Any] = {
            "learning_rate": learning_rate,
            "max_leaf_nodes": max_leaf_nodes,
            "l2_regularization": l2_regularization,
            "min_samples_leaf": min_samples_leaf,
            "max_features": max_features,
        }
        self.max_iter = max_iter
        trees, nodes = max_iter * (1 if self.outputs <= 2 else self.outputs), 2 * max_leaf_nodes - 1
        self.register_buffer("feature", torch.zeros(trees, nodes, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(trees, nodes, dtype=torch.float64))
        self.register_buffer("missing_left", torch.zeros(trees, nodes, dtype=torch.bool))
        self.register_buffer("branches", torch.zeros(trees, nodes, 2, dtype=torch.int16))
        self.register_buffer("leaf_values", torch.zeros(trees, nodes, dtype=torch.float64))
        self.register_buffer("start", torch.zeros(self.outputs, dtype=torch.float64))
        self.register_buffer("depth", torch.zeros((), dtype=torch.int64))

    @classmethod
    def describe(cls, data: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        """A leaf has a twentieth of the series, from 2 to 40; many series are learned from slowly."""
        return {"min_samples_leaf": int(np.clip(len(data) // 20, 2, 40)), **(SLOWLY if len(data) >= MANY else {})}

    def features(self, batch: Batch) -> Float[Tensor, "batch features"]:
        """Summary statistics, in the units of the scaled series."""
        return statistics_of(batch)

    def fit(self, training: SeriesSet, validation: SeriesSet, *, refit: bool, seed: int) -> dict[str, float]:
        x, y, w = self.table(training)
        held, truth, weight = self.table(validation)
        # scikit-learn bins no column without a number
        x[:, np.isnan(x).all(0)] = 0.0
        if len(truth) < ENOUGH:
            model = self._new_model(min(FEW_TREES, self.max_iter), seed).fit(x, y, unequal(w))
        else:
            model = self._new_model(self.max_iter, seed, early_stopping=True)
            both = unequal(np.append(w, weight))
            own = {} if both is None else {"sample_weight": w, "sample_weight_val": weight}
            model.fit(x, y, X_val=held, y_val=truth, **own)
        self._keep(model)
        found = self.metrics_of(self._follow(torch.from_numpy(held)).numpy(), truth)
        if refit:
            x, y, w = (np.concatenate(pair) for pair in ((x, held), (y, truth), (w, weight)))
            self._keep(self._new_model(model.n_iter_, seed).fit(x, y, unequal(w)))
        return found

    def _new_model(self, trees: int, seed: int, *, early_stopping: bool = False) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # noqa: PLC0415

        kind = HistGradientBoostingRegressor if self.classes is None else HistGradientBoostingClassifier
        return kind(max_iter=trees, early_stopping=early_stopping, random_state=seed, **self.settings)

    def _keep(self, model: Any) -> None:
        """Copy the trees; a leaf's children are the leaf itself."""
        for name in ("feature", "threshold", "missing_left", "branches", "leaf_values", "start"):
            getattr(self, name).zero_()
        # of two classes there is one tree a round, for the second
        columns = np.arange(1) if self.classes is None else np.asarray(model.classes_, np.int64)
        columns = columns[1:] if len(columns) == 2 else columns
        if self.classes is not None:
            self.start.fill_(UNSEEN)
            self.start[torch.as_tensor(np.asarray(model.classes_, np.int64))] = 0.0
        self.start[torch.as_tensor(columns)] = torch.from_numpy(np.ravel(model._baseline_prediction).astype(np.float64))
        every = range(self.outputs)[1 if self.outputs == 2 else 0 :]
        place = {column: n for n, column in enumerate(every)}
        deepest = 0
        for turn, grown in enumerate(model._predictors):
            for column, tree in zip(columns, grown, strict=True):
                row, nodes = turn * len(every) + place[int(column)], tree.nodes
                count, leaf = len(nodes), nodes["is_leaf"].astype(bool)
                both = np.stack([nodes["left"], nodes["right"]], 1).astype(np.int16)
                both[leaf] = np.arange(count, dtype=np.int16)[leaf, None]
                self.branches[row, :count] = torch.from_numpy(both)
                self.feature[row, :count] = torch.from_numpy(nodes["feature_idx"].astype(np.int32))
                self.threshold[row, :count] = torch.from_numpy(nodes["num_threshold"].astype(np.float64))
                self.missing_left[row, :count] = torch.from_numpy(nodes["missing_go_to_left"].astype(bool))
                self.leaf_values[row, :count] = torch.from_numpy(np.where(leaf, nodes["value"], 0.0))
                deepest = max(deepest, int(nodes["depth"].max()))
        self.depth.fill_(deepest)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Float[Tensor, "batch outputs"]:
        return self._follow(self.features(batch))

    def _follow(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        """Walk down all trees at once, and add up the leaves."""
        x = x.double()
        trees, nodes = self.feature.shape
        root = torch.arange(trees, device=x.device) * nodes
        at = torch.zeros(x.shape[0], trees, dtype=torch.int64, device=x.device)
        feature, children = self.feature.long().ravel(), self.branches.long().view(-1, 2)
        # a leaf's children are the leaf itself, so that further steps change nothing
        for _ in range(nodes // 2 if traced(x) else int(self.depth)):
            node = root + at
            cell = x.gather(1, feature[node])
            left = (cell <= self.threshold.ravel()[node]) | (cell.isnan() & self.missing_left.ravel()[node])
            at = torch.where(left, children[:, 0][node], children[:, 1][node])
        found = self.leaf_values.ravel()[root + at]
        own = 1 if self.outputs <= 2 else self.outputs
        # one tree after another, as scikit-learn adds them
        total = found.view(x.shape[0], -1, own).sum(1)
        scores = self.start.expand(x.shape[0], -1).clone()
        scores[:, -own:] += total
        return scores


class BoostedSummaries(Boosting):
    """Boosting as a part of another model: on the tensor form of the statistics, which is exported with the model."""

    def features(self, batch: Batch) -> Float[Tensor, "batch features"]:
        return summaries_of(batch)


def summaries_of(batch: Batch) -> Float[Tensor, "batch features"]:
    """:func:`~contiformer.nn.summaries.channel_summaries` and static features, NaN where there are none."""
    told = channel_summaries(batch.values, batch.times, batch.observed)
    parts = [torch.where(told[..., -1:] > 0, told[..., :-1], torch.nan).flatten(1)]
    if batch.static is not None and batch.static_observed is not None:
        parts.append(torch.where(batch.static_observed, batch.static, torch.nan))
    return torch.cat(parts, 1)


def unequal(weights: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The weights, None where all are equal: scikit-learn's weighted quantiles take 20 times as long."""
    return None if np.ptp(weights) == 0 else weights


def statistics_of(batch: Batch) -> Float[Tensor, "batch features"]:
    """Summary statistics of the series of a batch."""
    values = torch.where(batch.observed, batch.values, torch.nan).cpu().numpy()
    times, static = batch.times.cpu().numpy(), None
    if batch.static is not None and batch.static_observed is not None:
        static = torch.where(batch.static_observed, batch.static, torch.nan).cpu().numpy()
    series = [
        Series(times[n, :count], values[n, :count], None if static is None else static[n])
        for n, count in enumerate(batch.lengths.tolist())
    ]
    return torch.from_numpy(summary_statistics(SeriesSet(series))[0]).to(batch.values.device)

"""Classes of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from contiformer.data.errors import DataError
from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import Estimator, by_length, columns_of, has_gaps
from contiformer.estimators.labels import in_order_of, with_labels
from contiformer.estimators.tables import TABLES, read
from contiformer.tasks.classification import Classification
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.scores import classification_scores

#: Options of backbones that are not their own defaults. With states that keep their size and an encoding of time that
#: does not drown the values, more series were classified rightly in all of eight cross-validations within training
#: parts, see ``benchmarks/choices.py layers``.
DEFAULTS: dict[str, dict[str, Any]] = {"contiformer": {"norm": "entry", "encoding_scale": 0.3}}


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, Estimator):
    """Classifies series at irregular times with missing values.

    Attributes:
        pooling: how states become one: "learned", "mean" or "last".
        summaries: show mean, spread, extremes, ends and count of each channel to the head, see
            :class:`~contiformer.tasks.pooled.PooledHead`; None: where channels are missing at some points.
        class_weight: None, "balanced", or a dictionary from classes to weights.
        label_smoothing: see :class:`~contiformer.tasks.Classification`.
        backbone_options: as elsewhere, but contiformer has ``{"norm": "entry", "encoding_scale": 0.3}`` if they do not
            say otherwise; ``{"norm": "end", "encoding_scale": 1.0}`` is the paper's layer.
        warp: size of the random changes of the clock that a training step sees, see :class:`~contiformer.tasks.View`.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> from contiformer.data.synthetic import oscillators
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, 3.0, -1.0, -2.0, -3.0)]
        >>> y = ["up"] * 3 + ["down"] * 3
        >>> clf = Classifier(max_epochs=1, min_steps=1, validation=0.5, verbose=0).fit(X, y)
        >>> clf.predict(X).shape, clf.predict_proba(X).shape
        ((6,), (6, 2))
    """

    scaling: Literal["auto", "standard", "normal scores"] = "auto"
    pooling: Literal["learned", "mean", "last"] = "learned"
    summaries: bool | None = None
    class_weight: str | dict[Any, float] | None = None
    label_smoothing: float = 0.1
    warp: float = 0.2
    learning_rate: float = 4e-3
    max_epochs: int = 24
    validation: float = 0.15
    keep: Literal["auto", "best", "last"] = "auto"
    patience: float = 0.25

    task_name: ClassVar[str] = "classification"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | None = None,
        label: str | None = None,
        static: Sequence[str] = (),
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: a SeriesSet, a long DataFrame, an array [n, L, C] with NaN, or a list of (times, values).
            y: a class for each series, in the order in which their ids first appear, or, as a pandas Series, by the ids
                in its index; None: the label of the set, or the column ``label`` of the table.
            id, time, values, label, static: columns of a DataFrame.
            validation_data: (X, y) or a labelled SeriesSet or DataFrame to choose by, instead of a part of X.
        """
        columns = columns_of(id, time, values, label, static)
        series, form = read(X, columns, by_id=y is None)
        data = with_labels(series, in_order_of(series, y) if form in TABLES else y, classes=True)
        held_out = None
        if validation_data is not None:
            given, answers = validation_data if isinstance(validation_data, tuple) else (validation_data, None)
            held_out = with_labels(read(given, columns, data.channels)[0], answers, classes=True)
            self._refuse_unknown(held_out, data)
            held_out = held_out.described(data.schema)
        self._fit(data, columns, held_out)
        self._after_loading()
        return self

    def _refuse_unknown(self, data: SeriesSet, known: SeriesSet) -> None:
        assert data.classes is not None
        assert known.classes is not None
        strange = set(data.classes) - set(known.classes)
        if strange:
            raise DataError(f"validation_data has the class {min(strange)!r}, which X has not", remedy="leave it out")

    def _prepare(self, data: SeriesSet) -> SeriesSet:
        if data.classes is None or len(data.classes) < 2:
            raise DataError("there is only one class", remedy="give series of two classes or more")
        return data

    def _parts(self, data: SeriesSet, member: int) -> tuple[SeriesSet, SeriesSet]:
        """As for every estimator, but a class with a single series is learned rather than validated on."""
        training, held_out = super()._parts(data, member)
        lacking = set(data.labels) - set(training.labels)
        if not lacking:
            return training, held_out
        rare = [n for n, label in enumerate(held_out.labels) if label in lacking]
        others = [n for n in range(len(held_out)) if n not in rare]
        if not others:
            raise DataError("there are too few series to validate on", remedy="give more, or validation_data=")
        return SeriesSet([*training, *held_out.select(rare)], schema=data.schema), held_out.select(others)

    def _backbone_options(self) -> dict[str, Any]:
        return {**DEFAULTS.get(self.backbone, {}), **super()._backbone_options()}

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        assert training.classes is not None
        return {
            "classes": len(training.classes),
            "pooling": self.pooling,
            "summaries": has_gaps(training) if self.summaries is None else self.summaries,
            "dropout": self.dropout,
            "class_weights": self._class_weights(training),
            "label_smoothing": self.label_smoothing,
            "view": self._view(),
        }

    def _view(self) -> dict[str, Any]:
        return {**super()._view(), "warp": self.warp}

    def _class_weights(self, training: SeriesSet) -> list[float] | None:
        if self.class_weight is None:
            return None
        assert training.classes is not None
        counts = dict.fromkeys(training.classes, 0)
        for label in training.labels:
            counts[label] += 1
        if self.class_weight == "balanced":
            return [len(training) / (len(counts) * count) for count in counts.values()]
        if not isinstance(self.class_weight, dict) or set(self.class_weight) != set(counts):
            raise ValueError(
                f"class_weight must be None, 'balanced' or a weight for each of {', '.join(map(str, counts))}, "
                f"got {self.class_weight!r}"
            )
        return [float(self.class_weight[c]) for c in counts]

    def _make_task(self, config: dict[str, Any], inputs: Inputs) -> Classification:
        return Classification(self._new_backbone(config, inputs), inputs, **config["task"])

    def _after_loading(self) -> None:
        assert self.schema_.classes is not None
        self.classes_ = np.array(self.schema_.classes)

    @torch.no_grad()
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities [n, classes], in the order of ``classes_``."""
        scaled, back = by_length(self._read(X)[1])
        total: NDArray[np.float64] | float = 0.0
        for task in self.tasks_:
            assert isinstance(task, Classification)
            parts = [task.probabilities(batch).cpu().numpy() for batch in self._batches(scaled)]
            total = total + np.concatenate(parts).astype(np.float64)
        mean = np.asarray(total)[back] / len(self.tasks_)
        return mean / mean.sum(1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each series."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; y None: by the labels that X has."""
        labels = self._labels(X, y)
        right = self.predict(X) == labels
        return float(np.average(right, weights=sample_weight))

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """Accuracy, mean negative log-likelihood, calibration error; for two classes AUROC and average precision."""
        labels = self._labels(X, y)
        number = {c: n for n, c in enumerate(self.classes_.tolist())}
        strange = [label for label in labels.tolist() if label not in number]
        if strange:
            raise DataError(f"the class {strange[0]!r} did not occur in training")
        return classification_scores(self.predict_proba(X), np.array([number[label] for label in labels.tolist()]))

    def _labels(self, X: Any, y: Any) -> NDArray[Any]:
        self._check_fitted()
        series, form = read(X, self.columns_, self.schema_.channels)
        data = with_labels(series, in_order_of(series, y) if form in TABLES else y, classes=True)
        return np.array(data.labels)

"""The classifier of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.readers.duplicates import Policy
from contiformer.data.scaling import Origin, Scaling
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.estimators.base import Estimator, columns_of, has_gaps
from contiformer.estimators.labels import MissingLabels, weights_of, with_labels
from contiformer.estimators.tables import Columns, per_series
from contiformer.tasks.base import Judged, SeriesTask
from contiformer.tasks.baselines import BASELINES, DirectTask
from contiformer.tasks.baselines.rocket import Rocket
from contiformer.tasks.classification import Classification
from contiformer.tasks.inputs import Inputs

#: Series from which on those with missing channels are learned with stronger weight decay in fewer epochs: the options
#: of ``python -m benchmarks accuracy --case mortality``, chosen by folds of its training records.
MANY = 2000
MANY_WITH_GAPS: Mapping[str, Any] = {"weight_decay": 3.0, "learning_rate": 2e-3, "batch_size": 64, "epochs": 6}


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(Estimator):
    """Classifies series at irregular times with missing values.

    Attributes:
        pooling: pooling of the states of a series: "learned", "mean" or "last".
        summaries: show summary statistics of each channel to the head, see
            :class:`~contiformer.tasks.pooling.PooledHead`. None: where channels are missing at some points.
        beside: model whose logits are averaged with the network's: "boosting" on summary statistics, "rocket", random
            convolutions, or None, see :class:`~contiformer.tasks.Classification`. "auto": boosting where channels are
            missing at some points of 2,000 series or more, otherwise None. With "rocket", series that were recorded in
            one window of time share one clock, whatever ``time_origin`` is. Baselines as backbones ignore it.
        class_weight: None, "balanced", or a dictionary from classes to weights.
        label_smoothing: share of the probability that the loss spreads over all classes; None: 0.1, or 0 where
            channels are missing in 2,000 series or more, which are also trained with other defaults.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> from contiformer import Classifier, TrainingOptions
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, 3.0, -1.0, -2.0, -3.0)]
        >>> y = ["up"] * 3 + ["down"] * 3
        >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
        >>> clf = Classifier(training=quick).fit(X, y)
        >>> clf.predict(X).shape, clf.predict_proba(X).shape
        ((6,), (6, 2))
    """

    scaling: Literal["auto", "standard", "normal scores"] = "auto"
    pooling: Literal["learned", "mean", "last"] = "learned"
    summaries: bool | None = None
    beside: Literal["auto", "boosting", "rocket"] | None = "auto"
    class_weight: str | dict[Any, float] | None = None
    label_smoothing: float | None = None

    task_name: ClassVar[str] = "classification"
    training_defaults: ClassVar[Mapping[str, Any]] = {
        **Estimator.training_defaults,
        "learning_rate": 4e-3,
        "epochs": 24,
        "validation": 0.15,
        "keep": "auto",
        "patience": 0.25,
        "warp": 0.2,
    }

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | None = None,
        variable: str | None = None,
        value: str | None = None,
        label: str | None = None,
        static: Sequence[str] = (),
        categorical: Sequence[str] = (),
        duplicates: Policy = "error",
        sample_weight: Any = None,
        missing_labels: MissingLabels = "drop",
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: a SeriesSet, a DataFrame, an array [n, L, C] with NaN, or a list of (times, values).
            y: a class for each series. Beside a DataFrame: by id, as a dictionary, a pandas Series with the ids as its
                index, or a second table with the ids in a column; or one for each row. None: the label of the set, or
                the column ``label`` of the table.
            id, time, values, variable, value, label, static, categorical, duplicates: columns of a DataFrame, see
                :func:`contiformer.data.from_frame`.
            sample_weight: how much each series counts in the loss, given like ``y``.
            missing_labels: "drop": series without a label (None, NaN) are left out with a warning; "error".
            validation_data: (X, y) or a labelled SeriesSet or DataFrame to choose by, instead of a part of X.
        """
        columns = columns_of(id, time, values, label, static, (), variable, value, categorical, duplicates)
        how: dict[str, Any] = {"sample_weight": sample_weight, "missing_labels": missing_labels}
        self._fit(*self._parse(X, y, columns, validation_data, **how))
        self._after_loading()
        return self

    def _answered(self, data: SeriesSet, y: list[Any] | None, missing: MissingLabels = "drop") -> SeriesSet:
        return with_labels(data, y, classes=True, missing=missing)

    def _parse(
        self, X: Any, y: Any, columns: Columns, validation_data: Any, **how: Any
    ) -> tuple[SeriesSet, Columns, SeriesSet | None]:
        data, columns, held_out = super()._parse(X, y, columns, validation_data, **how)
        return data, columns, None if held_out is None else _with_classes(held_out, data.schema, "validation_data")

    def _known_classes(self, data: SeriesSet) -> SeriesSet:
        return _with_classes(data, self.schema_, "X")

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

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        assert training.classes is not None
        beside = self._beside(training)
        return {
            "classes": len(training.classes),
            "pooling": self.pooling,
            "summaries": has_gaps(training) if self.summaries is None else self.summaries,
            "beside": beside and {"name": beside, **BASELINES[beside].describe(training, scaling)},
            "dropout": self.dropout,
            "class_weights": self._class_weights(training),
            "label_smoothing": self._smoothing(training),
            "augmentation": self._augmentation(),
        }

    def _begin(self, task: SeriesTask | DirectTask, training: SeriesSet, validation: SeriesSet, seed: int) -> None:
        if isinstance(task, Classification):
            task.fit_beside(training, validation, seed)

    def _beside(self, training: SeriesSet) -> str | None:
        if self.beside not in ("auto", "boosting", "rocket", None):
            raise ValueError(f"beside must be 'auto', 'boosting', 'rocket' or None, got {self.beside!r}")
        if self.beside == "auto":
            return "boosting" if _many_with_gaps(training) else None
        return self.beside

    def _origin(self, data: SeriesSet) -> Origin:
        usual = super()._origin(data)
        return Rocket.origin(data, usual) if self.beside == "rocket" and self.backbone not in BASELINES else usual

    def _smoothing(self, training: SeriesSet) -> float:
        if self.label_smoothing is not None:
            return self.label_smoothing
        return 0.0 if _many_with_gaps(training) else 0.1

    def _training_defaults_for(self, data: SeriesSet) -> dict[str, Any]:
        return dict(MANY_WITH_GAPS) if _many_with_gaps(data) else {}

    def _facts(self) -> dict[str, str]:
        mixed = [task for task in self.tasks_ if isinstance(task, Classification) and task.beside is not None]
        shares = ", ".join(f"{float(task.share):.2f}" for task in mixed)
        return super()._facts() | ({f"weight of {self.config_['task']['beside']['name']}": shares} if mixed else {})

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

    def __sklearn_tags__(self) -> Any:
        """A classifier, for scikit-learn."""
        from sklearn.utils import ClassifierTags  # noqa: PLC0415

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags, tags.target_tags.required = "classifier", ClassifierTags(), True
        return tags

    @property
    def _per_series(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities [n, classes], in the order of ``classes_``.

        Of a DataFrame of pandas a DataFrame with the ids as its index and the classes as its columns, of polars one
        with the ids in its first column; both in the order of the ids.
        """
        bare, scaled, form = self._read(X)
        return per_series(form, bare, self._probabilities(scaled), self.classes_.tolist(), self.columns_, X)

    def _probabilities(self, scaled: SeriesSet) -> NDArray[np.float64]:
        mean = self._mean_over_members(scaled, "probabilities", len(self.classes_))
        return mean / mean.sum(1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """The most probable class of each series; of a DataFrame by id, see :meth:`predict_proba`."""
        bare, scaled, form = self._read(X)
        best = self.classes_[self._probabilities(scaled).argmax(1)]
        return per_series(form, bare, best, self.columns_.label or "class", self.columns_, X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; y None: by the labels that X has. ``y`` and ``sample_weight`` are given as in :meth:`fit`."""
        data, scaled = self._read_answered(X, y, sample_weight)
        right = self.classes_[self._probabilities(scaled).argmax(1)] == np.array(data.labels)
        return float(np.average(right, weights=weights_of(data)))

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Probabilities [n, classes] of all members together, and the numbers of the labels [n].

        The metrics are accuracy, mean negative log-likelihood, calibration error; for two classes AUROC and average
        precision.
        """
        data, scaled = self._read_answered(X, y)
        number = {c: n for n, c in enumerate(self.classes_.tolist())}
        labels = np.array(data.labels).tolist()
        strange = [label for label in labels if label not in number]
        if strange:
            raise DataError(f"the class {strange[0]!r} did not occur in training", remedy="leave its series out")
        return [{"probability": self._probabilities(scaled), "label": np.array([number[label] for label in labels])}]


def _many_with_gaps(data: SeriesSet) -> bool:
    return len(data) >= MANY and has_gaps(data)


def _with_classes(data: SeriesSet, known: Schema, name: str) -> SeriesSet:
    strange = set(data.classes or ()) - set(known.classes or ())
    if strange:
        problem = f"{name} has the class {min(strange)!r}, which was not there in training"
        raise DataError(problem, remedy="leave it out")
    return data.described(replace(data.schema, classes=known.classes))

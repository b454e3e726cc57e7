"""A weighted mean of several estimators."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from contiformer import __version__
from contiformer.data.conversion import plain
from contiformer.data.errors import DataError
from contiformer.data.files import read_text, write_text
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import columns_of
from contiformer.estimators.classifier import Classifier
from contiformer.estimators.labels import weights_of
from contiformer.estimators.regressor import Regressor
from contiformer.estimators.tables import per_series
from contiformer.tasks.base import Judged
from contiformer.tasks.scores import best_temperature, classification_scores, regression_scores

Task = Literal["classification", "regression"]
KINDS: dict[str, type[Classifier] | type[Regressor]] = {"classification": Classifier, "regression": Regressor}
#: Members of a blend by default, as names of backbones.
MEMBERS = ("contiformer", "boosting", "rocket")
FORMAT = 1
#: Weights are drawn to equal ones as if so many series spoke for them.
PRIOR = 5.0
#: Probabilities below count as this in a mean of their logarithms.
SMALLEST = 1e-6


def new_member(member: str | Classifier | Regressor, task: Task) -> Classifier | Regressor:
    """A new estimator by the name of its backbone, or with the parameters of another one."""
    if isinstance(member, str):
        return KINDS[task](backbone=member)
    if not isinstance(member, KINDS[task]):
        raise ValueError(f"members must be names of backbones or {KINDS[task].__name__}s, got {member!r}")
    return type(member)(**{field.name: getattr(member, field.name) for field in fields(member)})


def outputs_of(member: Any, data: SeriesSet, classes: Sequence[Any] | None = None) -> NDArray[np.float64]:
    """Probabilities [n, classes], or numbers [n, 1], of a fitted estimator for unscaled series.

    With ``classes`` there is a column for each, also for those that the estimator was not shown.
    """
    scaled = member._scaled(data)[1]
    if member.task_name == "regression":
        return np.asarray(member._mean_over_members(scaled, "values"))[:, None]
    said = np.asarray(member._probabilities(scaled))
    if classes is None or list(classes) == member.classes_.tolist():
        return said
    found = np.full((len(said), len(classes)), SMALLEST)
    found[:, [list(classes).index(label) for label in member.classes_.tolist()]] = said
    return found


class Blend:
    """A weighted mean of fitted estimators: of log-probabilities for classes, of numbers for a regression.

    The weights are not negative and add up to 1. They are those with the least loss on out-of-fold predictions: each
    member is trained once for each fold and predicts the series that it has not seen; then it is trained on all series.

    Args:
        members: names of backbones or baselines, or estimators, whose parameters are used.
        task: "classification" or "regression".
        folds: for the weights; training costs one more than so many trainings of each member.
        seed: of the folds.

    Example:
        >>> from contiformer import Blend
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in range(-20, 20)]
        >>> y = ["up" if n >= 0 else "down" for n in range(-20, 20)]
        >>> blend = Blend(["boosting", "rocket"], folds=2).fit(X, y)
        >>> blend.predict_proba(X).shape, round(sum(blend.weights_), 6)
        ((40, 2), 1.0)
    """

    def __init__(
        self,
        members: Sequence[str | Classifier | Regressor] = MEMBERS,
        *,
        task: Task = "classification",
        folds: int = 3,
        seed: int = 0,
    ) -> None:
        if task not in KINDS:
            raise ValueError(f"task must be 'classification' or 'regression', got {task!r}")
        if not members:
            raise ValueError("members must name one estimator or more")
        self.members, self.task, self.folds, self.seed = list(members), task, folds, seed

    def fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, missing_labels: Any = "drop", **columns: Any
    ) -> Self:
        """Train all members and find their weights.

        Args:
            X, y, sample_weight, missing_labels: see :meth:`Classifier.fit`.
            **columns: roles of the columns of a DataFrame, as in :meth:`Classifier.fit`: ``id=``, ``time=`` and so on.
        """
        started = time.perf_counter()
        self.fitted_: list[Classifier | Regressor] = []
        every = [new_member(member, self.task) for member in self.members]
        how: dict[str, Any] = {"sample_weight": sample_weight, "missing_labels": missing_labels}
        data, roles, _ = every[0]._parse(X, y, columns_of(**columns), None, **how)
        data = every[0]._prepare(data)
        if data.schema.targets:
            raise DataError("a blend predicts one answer for each series", remedy="give y, or the column label")
        said, labels, weight = self._out_of_fold(data)
        self._find_weights(said, labels, weight)
        for member in every:
            member.fit(data)
            member.require_complete()
            member.columns_ = roles
        self.fitted_ = every
        self.metrics_: dict[str, Any] = {
            "validation": self._scores(self._mean(said), labels),
            "members": {name: self._scores(one, labels) for name, one in zip(self.names, said, strict=True)},
            "weights": dict(zip(self.names, self.weights_, strict=True)),
            "seconds": time.perf_counter() - started,
        }
        return self

    @property
    def names(self) -> list[str]:
        """A name for each member."""
        return [member if isinstance(member, str) else repr(member) for member in self.members]

    def _out_of_fold(self, data: SeriesSet) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64]]:
        """Predictions [members, n, outputs] for series that were not trained on, their labels and weights."""
        pairs = data.k_fold(min(self.folds, len(data)), seed=self.seed, stratify=self.task == "classification")
        parts = []
        for rest, fold in pairs:
            fitted = [new_member(member, self.task).fit(rest).require_complete() for member in self.members]
            found = [outputs_of(member, fold, data.classes) for member in fitted]
            parts.append(np.stack(found))
        order = [one for _, fold in pairs for one in fold]
        weight = np.array([1.0 if one.weight is None else one.weight for one in order])
        given: list[Any] = [one.label for one in order]
        if self.task == "classification":
            number = {label: n for n, label in enumerate(data.classes or ())}
            return np.concatenate(parts, 1), np.array([number[label] for label in given]), weight
        return np.concatenate(parts, 1), np.array(given, np.float64), weight

    def _find_weights(self, said: NDArray[np.float64], labels: NDArray[Any], weight: NDArray[np.float64]) -> None:
        """Set weights and temperature: the least loss, drawn to equal weights as if by a few more series."""
        from scipy.optimize import minimize  # type: ignore[import-untyped]  # noqa: PLC0415 - start-up time

        self.temperature_ = 1.0
        count, rows = len(said), np.arange(len(labels))
        share = weight / weight.sum()
        spread = float(np.average((labels - np.average(labels, weights=weight)) ** 2, weights=weight)) or 1.0

        def cost(free: NDArray[np.float64]) -> float:
            weights = _softmax(np.append(free, 0.0))
            self.weights_ = weights.tolist()
            mean = self._mean(said)
            if self.task == "classification":
                loss = -float(share @ np.log(np.maximum(mean[rows, labels], SMALLEST)))
            else:
                loss = float(share @ (mean[:, 0] - labels) ** 2) / (2 * spread)
            # of equal weights: Σ (1/M) log((1/M) / w)
            return loss - PRIOR / len(labels) * float(np.mean(np.log(count * np.maximum(weights, 1e-12))))

        found = minimize(cost, np.zeros(count - 1), method="L-BFGS-B", bounds=[(-12, 12)] * (count - 1))
        self.weights_ = _softmax(np.append(found.x, 0.0)).tolist()
        if self.task == "classification":
            self.temperature_ = best_temperature(torch.from_numpy(np.log(self._mean(said))), torch.as_tensor(labels))

    def _mean(self, said: NDArray[np.float64]) -> NDArray[np.float64]:
        """The blend [n, outputs] of the predictions of all members."""
        if self.task == "regression":
            return np.tensordot(self.weights_, said, 1)
        mean = np.tensordot(self.weights_, np.log(np.maximum(said, SMALLEST)), 1) / self.temperature_
        return _softmax(mean)

    def _scores(self, said: NDArray[np.float64], labels: NDArray[Any]) -> dict[str, float]:
        if self.task == "classification":
            return classification_scores(said, labels)
        return regression_scores(said[:, 0] - labels, labels)

    # Use

    def _check_fitted(self) -> None:
        if not getattr(self, "fitted_", None):
            from sklearn.exceptions import NotFittedError  # noqa: PLC0415

            raise NotFittedError("this Blend is not fitted yet: call fit, or load a saved one")

    def _blended(self, data: SeriesSet) -> NDArray[np.float64]:
        return self._mean(np.stack([outputs_of(member, data) for member in self.fitted_]))

    def _answered(self, X: Any) -> Any:
        self._check_fitted()
        bare, _, form = self.fitted_[0]._read(X)
        return self._blended(bare), bare, form, self.fitted_[0].columns_

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the probabilities."""
        self._check_fitted()
        return self.fitted_[0].classes_  # type: ignore[union-attr]

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities [n, classes]; of a DataFrame by id, see :meth:`Classifier.predict_proba`."""
        if self.task != "classification":
            raise AttributeError("use predict: this blend predicts numbers")
        said, bare, form, columns = self._answered(X)
        return per_series(form, bare, said, self.classes_.tolist(), columns, X)

    def predict(self, X: Any) -> Any:
        """The most probable class of each series, or its number; of a DataFrame by id."""
        said, bare, form, columns = self._answered(X)
        if self.task == "classification":
            return per_series(form, bare, self.classes_[said.argmax(1)], columns.label or "class", columns, X)
        return per_series(form, bare, said[:, 0], columns.label or "prediction", columns, X)

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Inputs of the metrics, as of a :class:`Classifier` or a :class:`Regressor`."""
        self._check_fitted()
        first = self.fitted_[0]
        data = first._read_answered(X, y)[0]
        said = self._blended(data)
        if isinstance(first, Classifier):
            number = {label: n for n, label in enumerate(self.classes_.tolist())}
            strange = [label for label in np.array(data.labels).tolist() if label not in number]
            if strange:
                raise DataError(f"the class {strange[0]!r} did not occur in training", remedy="leave its series out")
            labels = np.array([number[label] for label in np.array(data.labels).tolist()])
            return [{"probability": said, "label": labels}]
        truth = np.array(data.labels, np.float64)
        return [{"miss": said[:, 0] - truth, "label": truth}]

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """All metrics on data with answers."""
        return self.fitted_[0].scores(self.judged(X, y))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy, or R²."""
        self._check_fitted()
        data = self.fitted_[0]._read_answered(X, y, sample_weight)[0]
        said, weights = self._blended(data), weights_of(data)
        if self.task == "classification":
            return float(np.average(self.classes_[said.argmax(1)] == np.array(data.labels), weights=weights))
        truth = np.array(data.labels, np.float64)
        spread = np.average((truth - np.average(truth, weights=weights)) ** 2, weights=weights)
        return 1 - float(np.average((said[:, 0] - truth) ** 2, weights=weights) / spread)

    # Files

    def save(self, folder: str | Path) -> None:
        """Write each member to a folder of its own, and the weights; nothing in them can run."""
        self._check_fitted()
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").unlink(missing_ok=True)
        for n, member in enumerate(self.fitted_):
            member.save(place / f"member{n}")
        config = {
            "format": FORMAT,
            "contiformer": __version__,
            "estimator": "Blend",
            "task": self.task,
            "folds": self.folds,
            "seed": self.seed,
            "names": self.names,
            "weights": self.weights_,
            "temperature": self.temperature_,
        }
        write_text(place / "metrics.json", json.dumps(self.metrics_, indent=1, default=plain))
        write_text(place / "config.json", json.dumps(config, indent=1, default=plain))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: for a folder that is no blend, is damaged, or of a newer version.
        """
        place = Path(folder)
        path = place / "config.json"
        if not path.is_file():
            raise DataError("no blend is saved here", file=place, remedy="pass the folder that save() wrote")
        try:
            config = json.loads(read_text(path))
            if config["estimator"] != "Blend":
                remedy = f"load it with {config['estimator']}.load"
                raise DataError(f"a {config['estimator']} is saved here", file=place, remedy=remedy)
            if config["format"] > FORMAT:
                raise DataError("the blend is of a newer version", file=place, remedy="upgrade contiformer")
            task, weights = config["task"], [float(weight) for weight in config["weights"]]
            if not weights or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6 or not config["temperature"] > 0:
                raise ValueError("weights or temperature")
            fitted = [KINDS[task].load(place / f"member{n}", device=device) for n in range(len(weights))]
            blend = cls(fitted, task=task, folds=int(config["folds"]), seed=int(config["seed"]))
            blend.metrics_ = json.loads(read_text(place / "metrics.json"))
        except (ValueError, TypeError, KeyError, AttributeError, FileNotFoundError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"the blend is damaged ({error})", file=place, remedy="train or copy it again") from None
        blend.fitted_, blend.weights_, blend.temperature_ = list(fitted), weights, float(config["temperature"])
        return blend


def _softmax(x: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... k"]:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

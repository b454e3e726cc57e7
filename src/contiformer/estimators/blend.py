"""A weighted mean of several estimators."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from contiformer import __version__
from contiformer.data.conversion import plain
from contiformer.data.errors import DataError
from contiformer.data.files import read_text, write_text
from contiformer.data.series_set import SeriesSet
from contiformer.estimators import store
from contiformer.estimators.base import columns_of
from contiformer.estimators.cells import Cells, names_of_models, new_model
from contiformer.estimators.classifier import Classifier
from contiformer.estimators.labels import weights_of
from contiformer.estimators.learner import Learner
from contiformer.estimators.regressor import Regressor
from contiformer.estimators.tables import per_series
from contiformer.tasks.base import Judged
from contiformer.tasks.scores import best_temperature, classification_scores, regression_scores

Task = Literal["classification", "regression"]
KINDS: dict[str, type[Classifier] | type[Regressor]] = {"classification": Classifier, "regression": Regressor}
#: Members of a blend by default, as names of backbones.
MEMBERS = ("contiformer", "boosting", "rocket")
#: Weights are drawn to equal ones as if so many series spoke for them.
PRIOR = 5.0
#: Probabilities below count as this in a mean of their logarithms.
SMALLEST = 1e-6
#: Facts about the data, and checks of new data, that all members have in common.
_SHARED = ("columns_", "schema_", "_per_series", "_answered", "_facts", "_parts", "metric_meanings", "scores")


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
        run_dir: folder for checkpoints and the blend; ``fit`` resumes from it. None: nothing is written.

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
        run_dir: str | Path | None = None,
    ) -> None:
        if task not in KINDS:
            raise ValueError(f"task must be 'classification' or 'regression', got {task!r}")
        if not members:
            raise ValueError("members must name one estimator or more")
        self.members, self.task, self.folds, self.seed, self.run_dir = list(members), task, folds, seed, run_dir

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
        folder = None if self.run_dir is None else Path(self.run_dir)
        places = [None if folder is None else folder / f"member{n}" for n in range(len(self.members))]
        every = [new_model(one, KINDS[self.task], place) for one, place in zip(self.members, places, strict=True)]
        how: dict[str, Any] = {"sample_weight": sample_weight, "missing_labels": missing_labels}
        data, roles, _ = every[0]._parse(X, y, columns_of(**columns), None, **how)
        data = every[0]._prepare(data)
        if data.schema.targets:
            problem = "a Blend predicts one answer for each series, and X has targets at times"
            raise DataError(problem, remedy="give y, or name the column in label=")
        said, known = self._out_of_fold(data, folder)
        self._weigh(said, *_answers(known), count=len(data))
        for member in every:
            member.fit(data)
            member.require_complete()
            member.columns_ = roles
        self.fitted_ = every
        self.metrics_["seconds"] = time.perf_counter() - started
        if folder is not None:
            self.save(folder)
        return self

    @classmethod
    def of_fitted(cls, models: Sequence[Classifier | Regressor], X: Any, y: Any = None) -> Self:
        """Blend models that are fitted already, with weights by series that none of them was trained on.

        Args:
            models: of one task, trained on the same channels, static features and classes.
            X, y: held-out series with answers, as in ``evaluate``.
        """
        _check_alike(models)
        blend = cls(models, task=models[0].task_name)  # type: ignore[arg-type]
        blend.fitted_ = list(models)
        data = models[0]._known_classes(models[0]._read_answered(X, y)[0])
        said = np.stack([outputs_of(model, data) for model in models])
        blend._weigh(said, *_answers(data), count=len(data))
        return blend

    def _weigh(
        self, said: NDArray[np.float64], labels: NDArray[Any], weight: NDArray[np.float64], *, count: int
    ) -> None:
        """Set the weights, and the metrics of predictions [members, n, outputs] that they come from."""
        self._find_weights(said, labels, weight)
        self.metrics_: dict[str, Any] = {
            "validation": self._scores(self._mean(said), labels),
            "members": {name: self._scores(one, labels) for name, one in zip(self.names, said, strict=True)},
            "weights": dict(zip(self.names, self.weights_, strict=True)),
            "training_series": count,
            "validation_series": len(labels),
        }

    @property
    def names(self) -> list[str]:
        """A name for each member."""
        return names_of_models(self.members)

    def _out_of_fold(self, data: SeriesSet, folder: Path | None) -> tuple[NDArray[np.float64], SeriesSet]:
        """Predictions [members, n, outputs] for series that were not trained on, and these series."""
        count = min(self.folds, len(data))
        pairs = data.k_fold(count, seed=self.seed, stratify=self.task == "classification")
        cells = Cells(folder, (self.task, count, self.seed, data.channels), data)
        parts: list[list[Any]] = [[] for _ in self.members]
        for number, (rest, fold) in enumerate(pairs):
            for member, name, own in zip(self.members, self.names, parts, strict=True):

                def train(place: Path | None, member: Any = member, rest: Any = rest, fold: Any = fold) -> Any:
                    fitted = new_model(member, KINDS[self.task], place).fit(rest).require_complete()
                    return {"said": outputs_of(fitted, fold, data.classes).tolist()}

                own.append(np.array(cells.run(name, number, train)["said"]))
        order = SeriesSet([one for _, fold in pairs for one in fold], schema=data.schema)
        return np.stack([np.concatenate(own) for own in parts]), order

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

    def __getattr__(self, name: str) -> Any:
        """Facts and checks that all members have in common, from the first of them."""
        if name not in _SHARED:
            raise AttributeError(f"a Blend has no {name!r}")
        self._check_fitted()
        return getattr(self.fitted_[0], name)

    @property
    def task_name(self) -> Task:
        """The name of the task in files and on the command line."""
        return self.task

    @property
    def tasks_(self) -> list[Any]:
        """The models of all members."""
        return [task for member in self.fitted_ for task in member.tasks_]

    @property
    def config_(self) -> dict[str, Any]:
        """The name of the model, for reports and servers."""
        return {"backbone": f"a blend of {', '.join(member.backbone for member in self.fitted_)}"}

    def to_options(self) -> dict[str, Any]:
        """Parameters, and the weight of each member."""
        weights = {f"weight of {name}": f"{x:.3f}" for name, x in zip(self.names, self.weights_, strict=True)}
        return {"task": self.task, "folds": self.folds, "seed": self.seed, **weights}

    def explain(self, *_: Any, **__: Any) -> NoReturn:
        """Not available for a blend: explain its members, ``blend.fitted_[0].explain(X)``."""
        raise ValueError("a Blend has no explanation of its own: explain its members, in member0 and so on")

    def export(self, *_: Any, **__: Any) -> NoReturn:
        """Not available for a blend: export its members, ``blend.fitted_[0].export(path)``."""
        raise ValueError("a Blend is no single graph: export its members, in member0 and so on")

    def _check_fitted(self) -> None:
        if not self.__dict__.get("fitted_"):
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
        data = first._known_classes(first._read_answered(X, y)[0])
        said, labels = self._blended(data), _answers(data)[0]
        if self.task == "classification":
            return [{"probability": said, "label": labels}]
        return [{"miss": said[:, 0] - labels, "label": labels}]

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """Compute all metrics on labelled data."""
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
            "format": store.FORMAT,
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
        config = store.read_config(place)
        if config.get("estimator") != "Blend":
            remedy = f"load it with {config.get('estimator')}.load"
            raise DataError(f"a {config.get('estimator')} is saved here", file=place, remedy=remedy)
        try:
            task, weights = config["task"], [float(weight) for weight in config["weights"]]
            if not weights or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6 or not config["temperature"] > 0:
                raise ValueError("weights or temperature")
            fitted = [KINDS[task].load(place / f"member{n}", device=device) for n in range(len(weights))]
            _check_alike(fitted)
            blend = cls(fitted, task=task, folds=int(config["folds"]), seed=int(config["seed"]))
            blend.metrics_ = json.loads(read_text(place / "metrics.json"))
        except (ValueError, TypeError, KeyError, AttributeError, FileNotFoundError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"the blend is damaged ({error})", file=place, remedy="train or copy it again") from None
        blend.fitted_, blend.weights_, blend.temperature_ = list(fitted), weights, float(config["temperature"])
        return blend


def load(folder: str | Path, *, device: str = "cpu") -> Any:
    """Any saved model: the estimator, or the blend, that the folder holds.

    Raises:
        DataError: for a folder that is no model, is damaged, or of another version.

    Example:
        >>> from tempfile import mkdtemp
        >>> from contiformer import Classifier, load
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in range(-20, 20)]
        >>> folder = mkdtemp()
        >>> Classifier(backbone="rocket").fit(X, [n > 0 for n in range(-20, 20)]).save(folder)
        >>> type(load(folder)).__name__
        'Classifier'
    """
    kind = Blend if store.read_config(Path(folder)).get("estimator") == "Blend" else Learner
    return kind.load(folder, device=device)


def _check_alike(models: Sequence[Any]) -> None:
    """Refuse models that do not answer the same question about the same series."""
    if not models:
        raise ValueError("models must be one fitted estimator or more")
    for n, model in enumerate(models):
        model._check_fitted()
        first, own = ((one.task_name, one.schema_) for one in (models[0], model))
        if own[0] not in KINDS or own[1].targets:
            raise DataError(f"model {n} is no classifier or regressor of whole series", remedy="leave it out")
        for what, mine, theirs in (
            ("task", own[0], first[0]),
            ("channels", own[1].channels, first[1].channels),
            ("static features", own[1].static, first[1].static),
            ("classes", own[1].classes, first[1].classes),
            ("kind of times", own[1].kind, first[1].kind),
        ):
            if mine != theirs:
                problem = f"model {n} has the {what} {mine!r}, and model 0 has {theirs!r}"
                raise DataError(problem, remedy="blend models that were trained on the same columns and labels")


def _answers(data: SeriesSet) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Labels, as numbers of classes where there are any, and weights of the series."""
    weight = np.array([1.0 if one.weight is None else one.weight for one in data])
    if data.classes is None:
        return np.array(data.labels, np.float64), weight
    number = {label: n for n, label in enumerate(data.classes)}
    return np.array([number[label] for label in data.labels]), weight


def _softmax(x: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... k"]:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

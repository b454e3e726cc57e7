"""The base class of all trained models: parameters, training options and files."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from contiformer.backbones import BACKBONES
from contiformer.data.errors import did_you_mean
from contiformer.estimators import store
from contiformer.tasks.base import Judged, Task
from contiformer.training.options import TrainingOptions, TrainingOutcome
from contiformer.training.processes import first_process

if TYPE_CHECKING:
    from contiformer.integrations.export import Exported

_TRAINING = tuple(field.name for field in fields(TrainingOptions))
_NESTED = "training__"


@dataclass(kw_only=True, eq=False, repr=False)
class Learner(ABC):
    """Parameters of everything that is trained; each is also a key of the command line's configuration.

    Attributes:
        backbone: its name in :data:`contiformer.backbones.BACKBONES`, or of a baseline that is fitted in seconds:
            "boosting" (gradient boosting on summary statistics) or "rocket" (random convolutions of the path) for
            classes and numbers, "last-value", "linear" (straight lines) or "seasonal-naive" for values at times. Sizes
            and most training options have no effect on these.
        d_model, n_layers, dropout: sizes that every backbone knows; n_layers None: as many as its paper has.
        backbone_options: its own options, for contiformer for example ``{"n_heads": 8, "interpolation": "cubic"}``.
            A backbone may have defaults of its own for the task.
        training: :class:`~contiformer.training.TrainingOptions`, such as ``TrainingOptions(max_epochs=50, seed=1)``;
            what they leave open has the estimator's defaults. In a grid search they are ``training__max_epochs`` etc.
        run_dir: folder for checkpoints, logs and the model; ``fit`` resumes from it. None: nothing is written.

    Example:
        >>> from contiformer.estimators import ESTIMATORS, Learner
        >>> model = ESTIMATORS["Regressor"](d_model=16)
        >>> isinstance(model, Learner), model.task_name, model.get_params()["d_model"]
        (True, 'regression', 16)
    """

    backbone: str = "contiformer"
    d_model: int = 64
    n_layers: int | None = None
    dropout: float = 0.2
    backbone_options: dict[str, Any] | None = None
    training: TrainingOptions | None = None
    run_dir: str | Path | None = None

    #: The name of the task in files and on the command line.
    task_name: ClassVar[str]
    #: Training options of this estimator that differ from the general ones.
    training_defaults: ClassVar[Mapping[str, Any]] = {"keep": "best"}
    #: Training options that have no effect on this estimator.
    unused_options: ClassVar[frozenset[str]] = frozenset({"validation_limit"})

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        """Tell where training options belong."""
        for name in parameters:
            if name in _TRAINING:
                raise TypeError(f"{name} is an option of the training: pass training=TrainingOptions({name}=...)")
        return super().__new__(cls)

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """An estimator from parameters and training options side by side, as configuration files may have them.

        Example:
            >>> from contiformer import Classifier
            >>> Classifier.from_options(d_model=32, max_epochs=5).training
            TrainingOptions(max_epochs=5)
        """
        flat = {name: options.pop(name) for name in _TRAINING if name in options}
        given = options.get("training") or {}
        inner = given.set_options() if isinstance(given, TrainingOptions) else dict(given)
        if flat or inner:
            options["training"] = TrainingOptions(**{**inner, **flat})
        return cls(**options)

    def to_options(self) -> dict[str, Any]:
        """Parameters and all training options side by side, the inverse of :meth:`from_options`."""
        parameters = self.get_params(deep=False)
        del parameters["training"]
        return {**parameters, **self.training_options().set_options()}

    # scikit-learn's protocol. Its base class is not inherited: importing scikit-learn takes as long as all the rest

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; deep: also the options of the training, as ``training__max_epochs``."""
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        options = TrainingOptions() if self.training is None else self.training
        # anything else is refused by fit
        if deep and isinstance(options, TrainingOptions):
            parameters |= {_NESTED + name: getattr(options, name) for name in _TRAINING}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, and options of the training as ``training__max_epochs``."""
        nested = {}
        known = sorted(field.name for field in fields(self))
        for name, value in parameters.items():
            if name.startswith(_NESTED):
                nested[name.removeprefix(_NESTED)] = value
            elif name in known:
                setattr(self, name, value)
            else:
                advice = f"use {_NESTED}{name}" if name in _TRAINING else did_you_mean(name, known)
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}; {advice}")
        for name in nested:
            if name not in _TRAINING:
                raise ValueError(f"there is no training option {name!r}; {did_you_mean(name, _TRAINING)}")
        if nested:
            if not isinstance(self.training, TrainingOptions | None):
                raise ValueError(f"training must be a TrainingOptions or None, got {self.training!r}")
            self.training = replace(self.training or TrainingOptions(), **nested)
        return self

    def __repr__(self) -> str:
        """The parameters that are not at their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        changed = {name: x for name, x in self.get_params(deep=False).items() if repr(x) != repr(defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        """Facts that scikit-learn asks for."""
        from sklearn.utils import Tags, TargetTags  # noqa: PLC0415

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def training_options(self) -> TrainingOptions:
        """All training options: those set, the estimator's defaults and, once fitted, those for its data."""
        found = getattr(self, "config_", {}).get("training_defaults", {})
        return (self.training or TrainingOptions()).with_defaults(**{**self.training_defaults, **found})

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.training_options().seed

    def _backbone_options(self) -> dict[str, Any]:
        layers = {} if self.n_layers is None else {"n_layers": self.n_layers}
        sizes = {"d_model": self.d_model, "dropout": self.dropout, **layers}
        # event models have names that are no backbones
        own = BACKBONES[self.backbone].defaults.get(self.task_name, {}) if self.backbone in BACKBONES else {}
        return {**own, **sizes, **(self.backbone_options or {})}

    # Hooks of subclasses

    @abstractmethod
    def _new_task(self, seed: int) -> Task:
        """The task that the configuration describes, with new weights."""

    @abstractmethod
    def _description(self) -> dict[str, Any]:
        """Facts about the training data that the model needs, for JSON."""

    @abstractmethod
    def _describe_again(self, saved: Mapping[str, Any]) -> None:
        """Back from :meth:`_description`."""

    @abstractmethod
    def _facts(self) -> dict[str, str]:
        """Facts about the training data for the model card."""

    @abstractmethod
    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Sums that the metrics of labelled data are computed from: a row for each series; one or all members."""

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """Compute all metrics on labelled data."""
        return self.scores(self.judged(X, y))

    def scores(self, judged: Sequence[Judged], rows: NDArray[np.int64] | None = None) -> dict[str, float]:
        """Metrics from the sums of :meth:`judged`, or from some of its rows; the mean over members."""
        some = [one if rows is None else {name: x[rows] for name, x in one.items()} for one in judged]
        found = [self.tasks_[0].metrics(one) for one in some]
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}

    def metric_meanings(self) -> dict[str, str]:
        """Meanings and units of the metrics of :meth:`evaluate`."""
        return {
            "accuracy": "share of correct predictions",
            "loss": "mean negative log-likelihood, in nats",
            "ece": "expected calibration error",
            "auroc": "area under the ROC curve",
            "average_precision": "area under the precision-recall curve",
            "r2": "R², 1 is perfect",
        }

    def _after_loading(self) -> None:  # noqa: B027  nothing by default
        """Set what ``fit`` sets and the configuration does not hold."""

    # Training and use

    def _forget(self) -> None:
        """Drop an earlier training, before one that may fail."""
        self.tasks_: list[Any] = []
        self.outcomes_: list[TrainingOutcome] = []
        self.config_: dict[str, Any] = {}
        self.metrics_: dict[str, Any] = {}

    def _record(self, held_out: Sequence[Mapping[str, float]], training: int, validation: int) -> None:
        """Set the metrics of the weights that were kept, of each member's validation series; and how they came about.

        ``training`` and ``validation`` are the numbers of series (forecasting: of windows) of the first member.
        """
        self.metrics_ = {
            "validation": {name: float(np.mean([m[name] for m in held_out if name in m])) for name in held_out[0]},
            "seconds": sum(outcome.seconds for outcome in self.outcomes_),
            "epochs": [len(outcome.history) for outcome in self.outcomes_],
            "kept_epochs": [outcome.best_round + 1 for outcome in self.outcomes_ if outcome.history],
            "training_series": training,
            "validation_series": validation,
        }
        kept = [outcome.history[outcome.best_round] for outcome in self.outcomes_ if outcome.history]
        monitor = self.tasks_[0].monitor
        if kept:
            # what the epoch was chosen by; calibration changed it afterwards
            self.metrics_["before_calibration"] = {monitor: float(np.mean([row[monitor] for row in kept]))}

    @property
    def history_(self) -> list[dict[str, float]]:
        """A row of metrics for each epoch, of the first member."""
        self._check_fitted()
        return self.outcomes_[0].history if self.outcomes_ else []

    def require_complete(self) -> Self:
        """Return this model, or raise if its training was stopped.

        Raises:
            KeyboardInterrupt: it was stopped, by Ctrl-C or SIGTERM.
        """
        self._check_fitted()
        if any(outcome.interrupted for outcome in self.outcomes_):
            raise KeyboardInterrupt("the training was stopped before its end")
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a model to ask; a training that failed leaves none."""
        return bool(getattr(self, "tasks_", None))

    @property
    def _per_series(self) -> bool:
        """Whether there is one answer for each series: a class or a number, not values at times."""
        return False

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.exceptions import NotFittedError  # noqa: PLC0415

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit, or load a saved one")

    def to(self, device: str) -> Self:
        """Move the model to a device; inputs follow."""
        self._check_fitted()
        for task in self.tasks_:
            task.to(device)
        return self

    # Files

    def save(self, folder: str | Path) -> None:
        """Write ``model.safetensors``, ``config.json``, ``metrics.json`` and a model card; nothing in them can run."""
        self._check_fitted()
        store.save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: for a folder that is no model, is damaged, of another estimator, or of a newer version.
        """
        loaded = store.load(Path(folder), cls, device)
        assert isinstance(loaded, cls)
        return loaded

    def export(self, path: str | Path, X: Any = None) -> Exported:
        """Write the model as one graph that runs without this library: ``model.onnx`` or ``model.pt2``.

        Scaling, clock, backbone, head and calibration of all members are in it; checks of the data are not. Inputs and
        outputs are in the units of the data and described in the file's metadata, see
        :mod:`contiformer.integrations.export`. ONNX needs ``pip install 'contiformer[export]'``.

        Args:
            path: the file; its ending decides on the format.
            X: series to compare file and model on, as for ``predict``; None: series that are generated from the
                statistics of the training data.

        Returns:
            Path, largest difference and metadata.

        Raises:
            ValueError: the model cannot be exported, or the file's answers differ from the model's own by more than
                1e-4 of the output's scale; nothing is written then.
        """
        from contiformer.integrations.export import export  # noqa: PLC0415 - above this package, and optional

        return export(self, path, X)

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Upload the folder that :meth:`save` writes; needs the package huggingface_hub."""
        return store.push(self, repo_id, **options)

    @classmethod
    def from_pretrained(cls, repo_id: str, *, device: str = "cpu", **options: Any) -> Self:
        """Download from the Hugging Face hub and load; needs the package huggingface_hub."""
        return cls.load(store.pull(repo_id, **options), device=device)

    def _train(self, *job: Any) -> TrainingOutcome:
        """:func:`contiformer.training.train`; Lightning is imported here, as it takes a second."""
        # the first import of Lightning draws random numbers
        state = random.getstate()
        from contiformer.training.trainer import train  # noqa: PLC0415

        random.setstate(state)
        return train(*job)

    def _save_run(self, folder: Path | None) -> None:
        """Save a finished training to its run folder, in the first process."""
        if folder is not None and first_process():
            self.save(folder)

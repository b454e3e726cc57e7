"""What every trained model has, whatever it learns: parameters, options of the training, and files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from contiformer.estimators import store
from contiformer.tasks.base import Task
from contiformer.training.options import TrainingOptions
from contiformer.training.trainer import Outcome

_TRAINING = {field.name for field in fields(TrainingOptions)}


@dataclass(kw_only=True, eq=False, repr=False)
class Learner(BaseEstimator, ABC):
    """Parameters of everything that is trained; each is also a key of the command line's configuration.

    Attributes:
        backbone: its name in :data:`contiformer.backbones.BACKBONES`.
        d_model, n_layers, dropout: sizes that every backbone knows; n_layers None: as many as its paper has.
        backbone_options: its own options, for contiformer for example ``{"n_heads": 8, "interpolation": "cubic"}``.
        validation: share of the data that is held out to choose by.
        max_epochs, min_steps, batch_size, learning_rate, warmup, field_rate, weight_decay, gradient_clip, averaging,
            patience, keep, seed, accelerator, devices, num_nodes, precision, num_workers, verbose: see
            :class:`~contiformer.training.TrainingOptions`.
        run_dir: folder for checkpoints, logs and the model; ``fit`` resumes from it. None: nothing is written.
    """

    backbone: str = "contiformer"
    d_model: int = 64
    n_layers: int | None = None
    dropout: float = 0.2
    backbone_options: dict[str, Any] | None = None
    validation: float = 0.2
    max_epochs: int = 100
    min_steps: int = 400
    batch_size: int | None = None
    learning_rate: float = 2e-3
    warmup: float = 0.1
    field_rate: float = 0.1
    weight_decay: float = 0.1
    gradient_clip: float = 1.0
    averaging: float = 0.98
    patience: float = 0.3
    keep: Literal["auto", "best", "last"] = "best"
    seed: int = 0
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = 1
    precision: str | None = None
    num_workers: int = 0
    verbose: int = 1
    run_dir: str | Path | None = None

    #: What the saved configuration calls the task.
    task_name: ClassVar[str]

    # What a subclass says

    @abstractmethod
    def _new_task(self, seed: int) -> Task:
        """The task that the configuration describes, with new weights."""

    @abstractmethod
    def _description(self) -> dict[str, Any]:
        """What is known of the training data, for JSON."""

    @abstractmethod
    def _describe_again(self, saved: Mapping[str, Any]) -> None:
        """Back from :meth:`_description`."""

    @abstractmethod
    def _facts(self) -> dict[str, str]:
        """What the model card tells of the training data."""

    @abstractmethod
    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """All metrics on data with answers."""

    def _after_loading(self) -> None:
        """Set what ``fit`` sets and the configuration does not hold."""

    # Training and use

    def _forget(self) -> None:
        """What an earlier training left; one that fails must not leave half of each."""
        self.tasks_: list[Any] = []
        self.outcomes_: list[Outcome] = []
        self.config_: dict[str, Any] = {}
        self.metrics_: dict[str, Any] = {}

    @property
    def history_(self) -> list[dict[str, float]]:
        """A row of metrics for each epoch, of the first member."""
        self._check_fitted()
        return self.outcomes_[0].history if self.outcomes_ else []

    def whole(self) -> Self:
        """This model, if its training came to its end: figures of one that was stopped are none.

        Raises:
            KeyboardInterrupt: it was stopped, by Ctrl-C or SIGTERM.
        """
        self._check_fitted()
        if any(outcome.interrupted for outcome in self.outcomes_):
            raise KeyboardInterrupt("the training was stopped before its end")
        return self

    def _training_options(self) -> TrainingOptions:
        return TrainingOptions(**{name: getattr(self, name) for name in _TRAINING})

    def _backbone_options(self) -> dict[str, Any]:
        layers = {} if self.n_layers is None else {"n_layers": self.n_layers}
        return {"d_model": self.d_model, "dropout": self.dropout, **layers, **(self.backbone_options or {})}

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a model to ask; a training that failed leaves none."""
        return bool(getattr(self, "tasks_", None))

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit, or load a saved one")

    def to(self, device: str) -> Self:
        """Move the model; input is moved with it."""
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

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Upload the folder that :meth:`save` writes; needs the package huggingface_hub."""
        return store.push(self, repo_id, **options)

    @classmethod
    def from_pretrained(cls, repo_id: str, *, device: str = "cpu", **options: Any) -> Self:
        """Download from the Hugging Face hub and load; needs the package huggingface_hub."""
        return cls.load(store.pull(repo_id, **options), device=device)


def first_process() -> bool:
    """Whether this one writes the files."""
    from torch import distributed  # noqa: PLC0415

    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0

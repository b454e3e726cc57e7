"""Training options, whatever the task, and the outcome of a training."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Literal

#: Validation series that suffice to tell epochs apart.
ENOUGH = 200
#: Options that do not change what is learned.
RUNTIME_OPTIONS = {"accelerator", "devices", "num_nodes", "precision", "num_workers", "verbose"}
#: Largest batch for validation and prediction.
EVALUATION_BATCH = 128


class _Default(Enum):
    """The value of an option that was not set; an enumeration, so that copies are the same object."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "default"


DEFAULT: Any = _Default.DEFAULT


def _option(general: Any) -> Any:
    """An option that is not set; its value where an estimator has no default of its own."""
    return field(default=DEFAULT, metadata={"general": general})


@dataclass(frozen=True, repr=False)
class TrainingOptions:
    """Options of a training. Those that are not set have the defaults of the estimator.

    Attributes:
        max_epochs: largest number of passes over the training series, and the length of the learning-rate schedule;
            never exceeded. None: ``epochs`` and ``min_steps`` decide.
        epochs: passes over the training series where ``max_epochs`` is None; more on small sets, see ``min_steps``.
        min_steps: least number of steps where ``max_epochs`` is None: small sets get more epochs.
        batch_size: series in a step over all processes; None: a quarter of the training series, from 8 to 32.
        learning_rate: peak of the schedule: linear warm-up over the share ``warmup`` of all steps, then a cosine to 0,
            or, with ``schedule="constant"``, no change.
        field_rate: share of the learning rate for the vector fields of continuous attention. Fields that learn as fast
            as the rest become stiff and slow.
        weight_decay: weight decay of AdamW, on matrices only.
        gradient_clip: largest norm of the gradient.
        averaging: decay of the exponential moving average of the weights, which is what is validated and kept.
        validation: share of the series (or of their time, where there are few) that is held out for validation.
        validation_limit: windows of a forecaster that are evaluated after each epoch, evenly spaced; None: all.
        patience: early stopping: share of the epochs without improvement after which training ends; 1: never. Only
            where the best epoch is kept.
        keep: the "best" epoch by validation, or the "last"; "auto": the best where there are enough validation series
            to tell (200), the last otherwise.
        keep_points, most_points, noise, warp: augmentation of the training series (not of events) at every step, see
            :class:`~contiformer.tasks.Augmentation`: share of the points kept, their largest number, standard deviation
            of the noise, size of the time warp.
        seed: seed of initialisation, order, dropout and augmentation.
        accelerator, devices, num_nodes, precision: as for Lightning's Trainer; precision None: bf16 on a GPU that
            is good at it, float32 otherwise.
        num_workers: processes that load batches.
        verbose: 0: silent, 1: progress.

    Example:
        >>> from contiformer import TrainingOptions
        >>> TrainingOptions(max_epochs=5, seed=1)
        TrainingOptions(max_epochs=5, seed=1)
        >>> options = TrainingOptions(max_epochs=5).with_defaults(epochs=24, min_steps=400, learning_rate=4e-3)
        >>> options.learning_rate, options.epochs_for(steps_per_epoch=2)
        (0.004, 5)
    """

    max_epochs: int | None = _option(None)
    epochs: int = _option(100)
    min_steps: int = _option(400)
    batch_size: int | None = _option(None)
    learning_rate: float = _option(2e-3)
    warmup: float = _option(0.1)
    schedule: Literal["cosine", "constant"] = _option("cosine")
    field_rate: float = _option(0.1)
    weight_decay: float = _option(0.1)
    gradient_clip: float = _option(1.0)
    averaging: float = _option(0.98)
    validation: float = _option(0.2)
    validation_limit: int | None = _option(None)
    patience: float = _option(0.3)
    keep: Literal["auto", "best", "last"] = _option("auto")
    keep_points: float = _option(1.0)
    most_points: int | None = _option(None)
    noise: float = _option(0.0)
    warp: float = _option(0.0)
    seed: int = _option(0)
    accelerator: str = _option("auto")
    devices: int | str = _option("auto")
    num_nodes: int = _option(1)
    precision: str | None = _option(None)
    num_workers: int = _option(0)
    verbose: int = _option(1)

    def __repr__(self) -> str:
        return f"TrainingOptions({', '.join(f'{name}={value!r}' for name, value in self.set_options().items())})"

    def set_options(self) -> dict[str, Any]:
        """The options that are set, by name."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in named.items() if value is not DEFAULT}

    def with_defaults(self, **defaults: Any) -> TrainingOptions:
        """All options set: those of ``self``, then ``defaults``, then the general ones; one out of range is refused."""
        general = {one.name: one.metadata["general"] for one in fields(self)}
        options = TrainingOptions(**{**general, **defaults, **self.set_options()})
        options._check()
        return options

    def _check(self) -> None:
        for name, least in {"epochs": 1, "min_steps": 0, "num_nodes": 1, "gradient_clip": 0}.items():
            self._refuse(name, not getattr(self, name) >= least, "positive")
        for name in ("max_epochs", "batch_size", "validation_limit"):
            value = getattr(self, name)
            self._refuse(name, value is not None and value < 1, "positive or None")
        for name in ("warmup", "field_rate", "averaging", "patience"):
            self._refuse(name, not 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("weight_decay", "seed", "num_workers"):
            self._refuse(name, getattr(self, name) < 0, "0 or more")
        self._refuse("learning_rate", not self.learning_rate > 0, "positive")
        self._refuse("averaging", self.averaging == 1, "below 1, or the mean would stay at the first weights")
        self._refuse("schedule", self.schedule not in ("cosine", "constant"), "'cosine' or 'constant'")
        self._refuse("keep", self.keep not in ("auto", "best", "last"), "'auto', 'best' or 'last'")

    def _refuse(self, name: str, wrong: bool, allowed: str) -> None:
        if wrong:
            raise ValueError(f"{name} must be {allowed}, got {getattr(self, name)!r}")

    def batch_for(self, series: int) -> int:
        """The batch size for so many training series."""
        return self.batch_size or min(32, max(8, series // 4))

    def keeping(self, validation: int) -> TrainingOptions:
        """Decide ``keep`` by the number of validation series."""
        if self.keep != "auto":
            return self
        return replace(self, keep="best" if validation >= ENOUGH else "last")

    def epochs_for(self, steps_per_epoch: int) -> int:
        """The planned number of epochs, counting those that a small set needs to get its steps."""
        if self.max_epochs is not None:
            return self.max_epochs
        return max(self.epochs, -(-self.min_steps // max(1, steps_per_epoch)))

    def augmentation(self) -> dict[str, Any]:
        """The fields of :class:`~contiformer.tasks.Augmentation`."""
        return {"keep": self.keep_points, "most": self.most_points, "warp": self.warp, "noise": self.noise}


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a training.

    Attributes:
        history: a row of metrics for each round.
        best_round: the one whose weights were kept.
        seconds: of this call; a resumed training does not count what went before.
        resumed: rounds that were done before.
        interrupted: the user stopped it.
        messages: what a user should know, such as a damaged checkpoint.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, SeriesSet
        >>> from contiformer.tasks import InputOptions, Inputs, Regression
        >>> from contiformer.training import TrainingOptions, train
        >>> data = SeriesSet([Series.of([0, 1], [[n], [-n]], label=n) for n in range(8)])
        >>> inputs = Inputs(InputOptions(channels=1))
        >>> task = Regression(make_backbone("contiformer", inputs.size, d_model=16), inputs)
        >>> outcome = train(task, data, data, TrainingOptions(max_epochs=2, verbose=0))
        >>> len(outcome.history), outcome.interrupted
        (2, False)
    """

    history: list[dict[str, float]]
    best_round: int
    seconds: float
    resumed: int
    interrupted: bool
    messages: list[str]

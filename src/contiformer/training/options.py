"""How to train, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: Validation series that tell epochs apart.
ENOUGH = 200


@dataclass(frozen=True)
class TrainingOptions:
    """Everything that decides the course of a training, and where it runs.

    Attributes:
        max_epochs: passes over the training series.
        min_steps: small sets get as many more epochs as this number of steps takes.
        batch_size: series in a step over all processes; None: a quarter of the training series, from 8 to 32.
        learning_rate: at its peak, after ``warmup`` (a share of all steps); then a cosine to zero.
        field_rate: share of the learning rate for the vector fields of continuous attention. Fields that learn as fast
            as the rest become stiff and slow.
        weight_decay: of AdamW, on matrices only.
        gradient_clip: largest norm of the gradient.
        averaging: the weights that are validated and kept are a running mean over about ``1 / (1 - averaging)`` steps.
        patience: stop when the validation metric has not improved for this share of the epochs; 1: never. Only where
            the best epoch is kept.
        keep: "best" epoch by validation, or the "last"; "auto": the best where there are enough validation series to
            tell (200), the last where a choice would be luck.
        seed: of the order, of dropout, of everything.
        accelerator, devices, num_nodes, precision: as for Lightning's Trainer; precision None: bf16 on a GPU that
            is good at it, float32 otherwise.
        verbose: 0: silent, 1: progress.
    """

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
    keep: str = "auto"
    seed: int = 0
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = 1
    precision: str | None = None
    num_workers: int = 0
    verbose: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with."""
        positive = {"max_epochs": 1, "min_steps": 0, "learning_rate": 0, "num_nodes": 1, "gradient_clip": 0}
        for name, least in positive.items():
            value = getattr(self, name)
            if not value >= least or (name == "learning_rate" and value == 0):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {self.batch_size}")
        for name in ("warmup", "field_rate", "averaging", "patience"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {value}")
        if self.averaging == 1:
            raise ValueError("averaging must be below 1: the mean would stay at the first weights")
        if self.weight_decay < 0 or self.seed < 0 or self.num_workers < 0:
            raise ValueError("weight_decay, seed and num_workers must not be negative")
        if self.keep not in ("auto", "best", "last"):
            raise ValueError(f"keep must be 'auto', 'best' or 'last', got {self.keep!r}")

    def batch_for(self, series: int) -> int:
        """The batch size for so many training series."""
        return self.batch_size or min(32, max(8, series // 4))

    def keeping(self, validation: int) -> TrainingOptions:
        """With ``keep`` decided, for so many validation series."""
        if self.keep != "auto":
            return self
        return replace(self, keep="best" if validation >= ENOUGH else "last")

    def epochs_for(self, steps_per_epoch: int) -> int:
        """Epochs, counting those that a small set needs to get its steps."""
        return max(self.max_epochs, -(-self.min_steps // max(1, steps_per_epoch)))

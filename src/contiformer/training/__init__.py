"""Training on Lightning: progress, checkpoints without pickle, exact resume, several processes."""

# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.training.lightning_task import LightningTask
    from contiformer.training.options import EVALUATION_BATCH, TrainingOptions, TrainingOutcome
    from contiformer.training.processes import Interrupted
    from contiformer.training.trainer import keep_freed_memory, train

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "processes": ["Interrupted"],
        "lightning_task": ["LightningTask"],
        "options": ["EVALUATION_BATCH", "TrainingOptions", "TrainingOutcome"],
        "trainer": ["keep_freed_memory", "train"],
    },
)

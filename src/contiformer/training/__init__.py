"""Training on Lightning: progress, checkpoints without pickle, exact resume, more than one process."""

from contiformer.lazy import lazy_names

__all__ = ["Interrupted", "TrainingOptions", "train"]

__getattr__ = lazy_names(__name__, {"Interrupted": "interrupt", "TrainingOptions": "options", "train": "trainer"})

"""Training on Lightning: progress, checkpoints without pickle, exact resume, several processes."""

from contiformer.lazy import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "interrupt": ["Interrupted"],
        "lightning_task": ["LightningTask"],
        "options": ["EVALUATION_BATCH", "TrainingOptions", "TrainingOutcome"],
        "trainer": ["keep_freed_memory", "train"],
    },
)

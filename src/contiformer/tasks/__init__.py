"""Tasks: a head, a loss and metrics on any backbone."""

from contiformer.lazy import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "at_times": ["AtTimes"],
        "augmentation": ["Augmentation"],
        "base": ["SeriesTask", "Task"],
        "classification": ["Classification"],
        "forecasting": ["Forecasting"],
        "heads": ["ValueHead"],
        "inputs": ["InputOptions", "Inputs"],
        "interpolation": ["Interpolation"],
        "pooling": ["Pooling"],
        "regression": ["Regression"],
    },
)

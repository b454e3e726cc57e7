"""Tasks: a head, a loss and metrics on any backbone, as LightningModules."""

from contiformer.lazy import lazy_names

__all__ = [
    "AtTimes",
    "Classification",
    "Forecasting",
    "InputOptions",
    "Inputs",
    "Interpolation",
    "Pooling",
    "Regression",
    "SeriesTask",
    "Task",
    "ValueHead",
    "View",
]

__getattr__ = lazy_names(
    __name__,
    {
        "AtTimes": "at_times",
        "Classification": "classification",
        "Forecasting": "forecasting",
        "InputOptions": "inputs",
        "Inputs": "inputs",
        "Interpolation": "interpolation",
        "Pooling": "pooling",
        "Regression": "regression",
        "SeriesTask": "base",
        "Task": "base",
        "ValueHead": "heads",
        "View": "view",
    },
)

"""The catalogue of public data sets: the registry, data folders, downloads, and one loader for each kind."""

from __future__ import annotations

from contiformer.lazy import lazy_names

#: Public names by module. Imported on first use: the list of data sets needs neither numpy nor polars.
_NAMES: dict[str, tuple[str, ...]] = {
    "clinical": ("clinical_split", "load_clinical"),
    "download": ("fetch", "verify"),
    "event_records": ("events_from_occupancy",),
    "events": ("EVENT_FOLDS", "check_fold", "load_events", "observation_windows"),
    "forecasting": ("PAPER_LENGTHS", "borders", "load_forecasting", "windows"),
    "irregular": ("load_irregular",),
    "registry": ("DATASETS", "DatasetInfo", "dataset_info"),
    "storage": ("ENVIRONMENT_VARIABLE", "data_folders", "find_file", "locate", "missing_data", "presence"),
    "uea": ("UEA_NAMES", "drop_points", "load_uea"),
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)

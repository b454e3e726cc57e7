"""Data: series, event sequences, readers, the catalogue of data sets, and generators."""
# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.data.batch import Batch, EventBatch, collate, collate_events
    from contiformer.data.catalog.storage import load
    from contiformer.data.conversion import as_datetimes, as_times
    from contiformer.data.errors import DataError, did_you_mean
    from contiformer.data.events import EventSequence, EventSet, without_features
    from contiformer.data.files import locked, read_bytes, read_text, write_atomically, write_bytes, write_text
    from contiformer.data.loader import BucketSampler, Loader
    from contiformer.data.readers.arrays import from_arrays, from_list, to_arrays
    from contiformer.data.readers.csv import read_csv, write_csv
    from contiformer.data.readers.frames import from_frame, to_frame
    from contiformer.data.readers.jsonl import read_events, write_events
    from contiformer.data.readers.parquet import read_parquet, scan_parquet, write_parquet
    from contiformer.data.readers.ts import read_ts
    from contiformer.data.readers.ts_writer import write_ts
    from contiformer.data.scaling import EventScaling, Scaling
    from contiformer.data.series import Series
    from contiformer.data.series_set import Schema, SeriesSet
    from contiformer.data.statistics import summary_statistics
    from contiformer.data.windows import cut_windows

#: Public names by module. Imported on first use: readers work without torch being imported.
_NAMES: dict[str, tuple[str, ...]] = {
    "batch": ("Batch", "EventBatch", "collate", "collate_events"),
    "catalog.storage": ("load",),
    "conversion": ("as_datetimes", "as_times"),
    "errors": ("DataError", "did_you_mean"),
    "events": ("EventSequence", "EventSet", "without_features"),
    "files": ("locked", "read_bytes", "read_text", "write_atomically", "write_bytes", "write_text"),
    "loader": ("BucketSampler", "Loader"),
    "readers.arrays": ("from_arrays", "from_list", "to_arrays"),
    "readers.csv": ("read_csv", "write_csv"),
    "readers.frames": ("from_frame", "to_frame"),
    "readers.jsonl": ("read_events", "write_events"),
    "readers.parquet": ("read_parquet", "scan_parquet", "write_parquet"),
    "readers.ts": ("read_ts",),
    "readers.ts_writer": ("write_ts",),
    "scaling": ("EventScaling", "Scaling"),
    "series": ("Series",),
    "series_set": ("Schema", "SeriesSet"),
    "statistics": ("summary_statistics",),
    "windows": ("cut_windows",),
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)

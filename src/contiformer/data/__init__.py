"""Data: series, event sequences, readers, the catalogue of data sets, and generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.data.batch import Batch, collate
    from contiformer.data.catalog.loading import load
    from contiformer.data.errors import DataError
    from contiformer.data.event_batch import EventBatch, collate_events
    from contiformer.data.events import EventSequence, EventSet
    from contiformer.data.loader import Loader
    from contiformer.data.readers.arff import read_arff, write_arff
    from contiformer.data.readers.csv import read_csv, write_csv
    from contiformer.data.readers.frames import from_frame, to_frame
    from contiformer.data.readers.jsonl import read_events, write_events
    from contiformer.data.readers.lazy_parquet import scan_parquet
    from contiformer.data.readers.parquet import read_parquet, write_parquet
    from contiformer.data.readers.ts import read_ts, write_ts
    from contiformer.data.readers.wide import from_arrays, from_list, to_arrays
    from contiformer.data.sampler import BucketSampler
    from contiformer.data.scaling import Scaling
    from contiformer.data.series import Series
    from contiformer.data.series_set import Schema, SeriesSet

_HOMES = {
    "Batch": "batch",
    "collate": "batch",
    "load": "catalog.loading",
    "DataError": "errors",
    "EventBatch": "event_batch",
    "EventSequence": "events",
    "EventSet": "events",
    "collate_events": "event_batch",
    "BucketSampler": "sampler",
    "Loader": "loader",
    "Scaling": "scaling",
    "Schema": "series_set",
    "Series": "series",
    "SeriesSet": "series_set",
    "read_arff": "readers.arff",
    "write_arff": "readers.arff",
    "read_csv": "readers.csv",
    "write_csv": "readers.csv",
    "from_frame": "readers.frames",
    "to_frame": "readers.frames",
    "read_events": "readers.jsonl",
    "write_events": "readers.jsonl",
    "read_parquet": "readers.parquet",
    "scan_parquet": "readers.lazy_parquet",
    "write_parquet": "readers.parquet",
    "read_ts": "readers.ts",
    "write_ts": "readers.ts",
    "from_arrays": "readers.wide",
    "from_list": "readers.wide",
    "to_arrays": "readers.wide",
}
__all__ = [
    "Batch",
    "BucketSampler",
    "DataError",
    "EventBatch",
    "EventSequence",
    "EventSet",
    "Loader",
    "Scaling",
    "Schema",
    "Series",
    "SeriesSet",
    "collate",
    "collate_events",
    "from_arrays",
    "from_frame",
    "from_list",
    "load",
    "read_arff",
    "read_csv",
    "read_events",
    "read_parquet",
    "read_ts",
    "scan_parquet",
    "to_arrays",
    "to_frame",
    "write_arff",
    "write_csv",
    "write_events",
    "write_parquet",
    "write_ts",
]


# readers work without torch being imported
__getattr__ = lazy_names(__name__, _HOMES)

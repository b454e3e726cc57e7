"""The catalogue of public data sets: what there is, where it is, how to get it, and one loader for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.data.catalog.clinical import load_clinical
    from contiformer.data.catalog.drop import drop_points
    from contiformer.data.catalog.events import load_events
    from contiformer.data.catalog.forecasting import borders, load_forecasting, windows
    from contiformer.data.catalog.loading import load
    from contiformer.data.catalog.registry import DATASETS
    from contiformer.data.catalog.store import locate
    from contiformer.data.catalog.uea import load_uea

_HOMES = {
    "DATASETS": "registry",
    "borders": "forecasting",
    "drop_points": "drop",
    "load": "loading",
    "load_clinical": "clinical",
    "load_events": "events",
    "load_forecasting": "forecasting",
    "load_uea": "uea",
    "locate": "store",
    "windows": "forecasting",
}
__all__ = [
    "DATASETS",
    "borders",
    "drop_points",
    "load",
    "load_clinical",
    "load_events",
    "load_forecasting",
    "load_uea",
    "locate",
    "windows",
]


# the list of data sets needs neither numpy nor polars
__getattr__ = lazy_names(__name__, _HOMES)

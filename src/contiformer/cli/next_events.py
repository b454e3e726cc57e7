"""What a model of events says comes next, for the sequences of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contiformer.cli.event_source import EventSource, other_events
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from contiformer.estimators import EventPredictor


def next_events(estimator: EventPredictor, given: str, n: int | None, **columns: str | None) -> pl.DataFrame:
    """A row for each sequence, or with ``n`` a row for each of its next n events.

    Args:
        estimator: trained.
        given: a file or a set of the catalogue.
        n: how many events ahead; None: the next one, without sampling.
        columns: ``id``, ``time``, ``type`` where a table calls them otherwise than that of the training.
    """
    events: Any = other_events(EventSource(""), estimator, given, **columns)
    if events.dates != estimator.dates_:
        kinds = ("dates", "numbers") if events.dates else ("numbers", "dates")
        raise DataError(
            f"the times of --input are {kinds[0]}, the run was trained on {kinds[1]}",
            remedy="give the same kind of times",
        )
    table: pl.DataFrame = estimator.predict_next(events) if n is None else estimator.predict_ahead(events, n)
    return table

"""The pictures of a run on events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contiformer.data.errors import DataError
from contiformer.estimators.event_review import review
from contiformer.reports.classes import draw_confusion
from contiformer.reports.events import Intensity, draw_gaps, draw_intensities, draw_residuals

if TYPE_CHECKING:
    from contiformer.cli.run_folder import Start
    from contiformer.data.events import EventSet
    from contiformer.estimators import EventPredictor

_ROWS = 3
#: Of a sequence in a picture: more cannot be told apart.
_MOST_EVENTS = 60
#: Sequences are looked at until they have so many events.
_ENOUGH = 20_000
_POINTS_BETWEEN = 12


def event_pictures(start: Start | None, estimator: EventPredictor, folder: Path) -> Iterator[Path]:
    """Intensities, gaps, residuals, and the confusion of types where there are several."""
    data, part = shown_events(start, estimator)
    if data is None:
        return
    data = data.select(np.flatnonzero(data.lengths > 1))
    if not len(data):
        raise DataError(f"no {part} sequence has two events", remedy="there is nothing to draw")
    data = _some(data)
    seen = review(estimator, data)
    title = f"{len(seen.wait):,} events of {len(data):,} {part} sequences"
    yield _intensities(estimator, data, part, folder / "intensity.png")
    rmse = float(np.sqrt(np.mean((seen.wait - seen.expected) ** 2)))
    yield draw_gaps(seen.wait, seen.expected, folder / "gaps.png", f"{title}\nRMSE {rmse:.4g}")
    yield draw_residuals(estimator.residuals(data), folder / "residuals.png", title)
    names = estimator.type_names_
    if len(names) > 1:
        yield draw_confusion(seen.kind, seen.said, names, folder / "confusion.png", title)


def shown_events(start: Start | None, estimator: EventPredictor) -> tuple[EventSet | None, str]:
    """The test part, or the sequences that were validated on, and what to call them."""
    if start is None:
        return None, ""
    source: Any = start.source
    test = source.testing(estimator)
    if test is not None:
        return test.data, "test"
    training, validation, _ = source.training()
    return (estimator._parts(training.data)[1] if validation is None else validation.data), "validation"


def _some(data: EventSet) -> EventSet:
    """Spread over the set, not chosen by result."""
    share = min(1.0, _ENOUGH / max(1, int(data.lengths.sum())))
    return data.select(np.unique(np.linspace(0, len(data) - 1, max(_ROWS, int(share * len(data)))).astype(int)))


def _intensities(estimator: EventPredictor, data: EventSet, part: str, path: Path) -> Path:
    chosen = data.select(np.unique(np.linspace(0, len(data) - 1, _ROWS).astype(int)))
    rows = []
    for number, whole in enumerate(chosen):
        one = whole.events(slice(0, _MOST_EVENTS))
        at = _moments(one.times)
        cut = f", first {len(one)} of {len(whole)} events" if len(one) < len(whole) else ""
        name = f"sequence {number if one.id is None else one.id}{cut}"
        rows.append(Intensity(name, at, estimator.intensity_at(one, at).sum(1), one.times, one.types))
    title = f"{len(rows)} of {len(data):,} {part} sequences, intensity of all types together"
    return draw_intensities(rows, estimator.type_names_, path, title=title, dates=estimator.dates_)


def _moments(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Between each event and the next, the ends among them: intensities jump there."""
    gaps = np.diff(times)
    share = np.linspace(0, 1, _POINTS_BETWEEN)
    # just after an event, its influence is there and that of the next is not
    share[0] = 1e-6
    at = (times[:-1, None] + gaps[:, None] * share).ravel()
    return np.unique(at[at > times[0]])

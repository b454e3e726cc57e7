"""Event times in a unit of the data's own: what is learned does not depend on hours or seconds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet

#: Levels at which the waiting times of the training data are remembered.
LEVELS = tuple(np.linspace(0.0, 1.0, 65).tolist())


@dataclass(frozen=True)
class EventScaling:
    """What the training sequences say about time and types.

    Times become ``(t - t_first) / unit``: the first event of a sequence is at 0, and the mean wait is 1. A density of
    scaled times is ``unit`` times that of the data's, so a log-likelihood per event is less by ``log unit`` in the
    data's.

    Attributes:
        unit: the mean time from an event to the next.
        span: how long the longest sequence is, in units.
        waits: quantiles of the waits at :data:`LEVELS`, in units.
        counts: events of each type that are not the first of their sequence.
        feature_mean, feature_std: of further features of events.
    """

    unit: float
    span: float
    waits: tuple[float, ...]
    counts: tuple[int, ...]
    feature_mean: tuple[float, ...] = ()
    feature_std: tuple[float, ...] = ()

    @classmethod
    def fit(cls, data: EventSet) -> EventScaling:
        """From the training sequences.

        Raises:
            DataError: nothing happens after the first events, or everything at once.
        """
        waits = [np.diff(sequence.times) for sequence in data]
        every = np.concatenate(waits) if waits else np.zeros(0)
        if not len(every):
            raise DataError(
                "no sequence has two events, so there is nothing to learn about waiting", remedy="give longer sequences"
            )
        unit = float(every.mean())
        if not 0 < unit < np.inf:
            raise DataError(
                f"the mean time between events is {unit:g}", remedy="give times that differ, and that are not too large"
            )
        spans = [float(wait.sum()) for wait in waits if len(wait)]
        counts = np.zeros(data.num_types, np.int64)
        for sequence in data:
            np.add.at(counts, sequence.types[1:], 1)
        return cls(
            unit=unit,
            span=max(1.0, max(spans) / unit),
            waits=tuple((np.quantile(every, LEVELS) / unit).tolist()),
            counts=tuple(counts.tolist()),
            **_feature_statistics(data),
        )

    def apply(self, data: EventSet) -> EventSet:
        """The sequences as models see them."""
        return data.map(self.apply_to)

    def apply_to(self, sequence: EventSequence) -> EventSequence:
        """One sequence.

        Raises:
            DataError: it has other features than the training sequences.
        """
        times = (sequence.times - sequence.times[:1]) / self.unit
        if not self.feature_mean:
            return replace(sequence, times=times, features=None)
        found = 0 if sequence.features is None else sequence.features.shape[1]
        if sequence.features is None or found != len(self.feature_mean):
            name = "" if sequence.id is None else f" {sequence.id!r}"
            raise DataError(
                f"sequence{name} has {found} features of events, others in the training have {len(self.feature_mean)}",
                remedy="give all sequences the same features, NaN where unknown",
            )
        return replace(sequence, times=times, features=(sequence.features - self.feature_mean) / self.feature_std)

    def to_json(self) -> str:
        """For the folder of a model."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EventScaling:
        """Back from :meth:`to_json`."""
        saved: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in json.loads(text).items()}
        return cls(**saved)


def _feature_statistics(data: EventSet) -> dict[str, tuple[float, ...]]:
    known = [sequence.features for sequence in data if sequence.features is not None and len(sequence)]
    if not known:
        return {}
    widths = sorted({features.shape[1] for features in known})
    if len(widths) > 1:
        raise DataError(
            f"sequences with {widths[0]} and with {widths[-1]} features of events",
            remedy="give all sequences the same features, NaN where unknown",
        )
    every = np.concatenate(known).astype(np.float64)
    observed = np.isfinite(every)
    count = np.maximum(1, observed.sum(0))
    mean = np.where(observed, every, 0).sum(0) / count
    std = np.sqrt((np.where(observed, every - mean, 0) ** 2).sum(0) / count)
    return {"feature_mean": tuple(mean.tolist()), "feature_std": tuple(np.where(std > 0, std, 1.0).tolist())}

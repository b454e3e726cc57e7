"""Padded batches of series and of event sequences: the one place where padding happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence
from contiformer.data.series import Label, Series


class _Padded:
    """Padded tensors of a batch that move together."""

    times: Tensor

    def __len__(self) -> int:
        return self.times.shape[0]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Copy to a device. Times become float32 on one that has no float64 (mps)."""
        no_double = torch.device(device).type == "mps"

        def move(tensor: Tensor) -> Tensor:
            kept = tensor.float() if no_double and tensor.dtype == torch.float64 else tensor
            return kept.to(device, non_blocking=non_blocking)

        return self._map(move)

    def pin_memory(self) -> Self:
        """Copy to page-locked memory, as a DataLoader with ``pin_memory=True`` asks for."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        tensors = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(_Padded):
    """A padded batch of series, in the order they came.

    Attributes:
        times: [B, L] float64; padding repeats the last time of its series.
        values: [B, L, C], 0 where not observed.
        observed: [B, L, C], True where a channel was observed; False in the padding.
        lengths: [B], the number of points of each series.
        static: [B, S], 0 where unknown, with static_observed [B, S].
        label: [B], numbers of classes (int64) or values (float64).
        target_times, target_values, target_observed, target_lengths: the series to predict, padded in the same way.
        weight: [B], how much each series counts in a loss; None: all the same.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 1], [[1.0], [float("nan")]]), Series.of([5], [[3.0]])])
        >>> batch.mask.tolist(), batch.observed[..., 0].tolist()
        ([[True, True], [True, False]], [[True, False], [True, False]])
    """

    times: Float64[Tensor, "batch points"]
    values: Float[Tensor, "batch points channels"]
    observed: Bool[Tensor, "batch points channels"]
    lengths: Int64[Tensor, " batch"]
    static: Float[Tensor, "batch features"] | None = None
    static_observed: Bool[Tensor, "batch features"] | None = None
    label: Tensor | None = None
    target_times: Float64[Tensor, "batch targets"] | None = None
    target_values: Float[Tensor, "batch targets outputs"] | None = None
    target_observed: Bool[Tensor, "batch targets outputs"] | None = None
    target_lengths: Int64[Tensor, " batch"] | None = None
    weight: Float[Tensor, " batch"] | None = None
    ids: tuple[Any, ...] = ()

    @property
    def mask(self) -> Bool[Tensor, "batch points"]:
        """True at points, False in the padding."""
        return torch.arange(self.times.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def __getitem__(self, which: slice) -> Batch:
        return replace(self._map(lambda tensor: tensor[which]), ids=self.ids[which])


@dataclass(frozen=True)
class EventBatch(_Padded):
    """A padded batch of event sequences, in the order they came.

    Attributes:
        times: [B, L] float64; padding repeats the last time.
        types: [B, L] int64, 0 in the padding.
        mask: [B, L], True at events.
        features: [B, L, F], 0 where unknown, with features_observed.
        weight: [B], how much each sequence counts in a loss; None: all the same.

    Example:
        >>> from contiformer.data import EventSequence, collate_events
        >>> batch = collate_events([EventSequence.of([0, 1], [0, 2]), EventSequence.of([4], [1])])
        >>> batch.types.tolist(), batch.lengths.tolist()
        ([[0, 2], [1, 0]], [2, 1])
    """

    times: Float64[Tensor, "batch events"]
    types: Int64[Tensor, "batch events"]
    mask: Bool[Tensor, "batch events"]
    features: Float[Tensor, "batch events features"] | None = None
    features_observed: Bool[Tensor, "batch events features"] | None = None
    weight: Float[Tensor, " batch"] | None = None
    ids: tuple[Any, ...] = ()

    @property
    def lengths(self) -> Int64[Tensor, " batch"]:
        """The number of events of each sequence."""
        return self.mask.sum(1)


def collate(series: Sequence[Series], classes: Sequence[Label] | None = None) -> Batch:
    """Pad series to the longest; labels are numbered by their place in ``classes``, or are values where it is None.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 1], [[1.0], [2.0]]), Series.of([5], [[3.0]])])
        >>> batch.times.tolist(), batch.lengths.tolist()
        ([[0.0, 1.0], [5.0, 5.0]], [2, 1])
    """
    if len(series) == 0:
        raise DataError("a batch of no series", remedy="pass at least one")
    times, values, observed, lengths = _padded([s.times for s in series], [s.values for s in series])
    static = static_observed = None
    if any(s.static is not None for s in series):
        fixed = [_given(s.static, "static features") for s in series]
        if len({len(one) for one in fixed}) > 1:
            raise DataError("series with different static features in one batch", remedy="use NaN for what is unknown")
        stacked = np.stack(fixed)
        _refuse_too_large(stacked)
        static_observed = torch.from_numpy(~np.isnan(stacked))
        static = torch.from_numpy(np.nan_to_num(stacked).astype(np.float32))
    target: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None] = (None, None, None, None)
    if any(s.target_values is not None for s in series):
        wanted = [_given(s.target_values, "a target") for s in series]
        target = _padded([s.target_times for s in series], wanted)
    label = _labels([s.label for s in series], classes)
    ids = tuple(s.id for s in series)
    weight = None
    if any(s.weight is not None for s in series):
        weight = torch.tensor([1.0 if s.weight is None else s.weight for s in series])
    return Batch(times, values, observed, lengths, static, static_observed, label, *target, weight=weight, ids=ids)


def _given(array: Any, what: str) -> Any:
    if array is None:
        raise DataError(f"some series of the batch have {what} and some do not", remedy="use NaN for what is unknown")
    return array


def _refuse_too_large(values: Any) -> None:
    if values.dtype != np.float32 and np.abs(values[~np.isnan(values)]).max(initial=0.0) > np.finfo(np.float32).max:
        raise DataError("a value is too large for float32", remedy="scale the data first, see Scaling")


def _labels(labels: Sequence[Label | None], classes: Sequence[Label] | None) -> Tensor | None:
    if all(label is None for label in labels):
        return None
    if any(label is None for label in labels):
        raise DataError("some series of the batch have a label and some do not", remedy="label all or none")
    if classes is None:
        try:
            # beside a large mean their differences would not survive float32
            return torch.tensor([float(label) for label in labels if label is not None], dtype=torch.float64)
        except ValueError:
            raise DataError("labels are words", remedy="name the classes in the SeriesSet") from None
    number = {label: n for n, label in enumerate(classes)}
    unknown = [label for label in labels if label not in number]
    if unknown:
        raise DataError(f"the label {unknown[0]!r} is none of the classes {tuple(classes)}", remedy="add it to classes")
    return torch.tensor([number[label] for label in labels if label is not None])


def _padded(all_times: Sequence[Any], all_values: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """times [B, L], values [B, L, C], observed [B, L, C], lengths [B]."""
    lengths = np.fromiter(map(len, all_times), np.int64, len(all_times))
    channels = {v.shape[1] for v in all_values}
    if len(channels) > 1:
        raise DataError(f"series with {sorted(channels)} channels in one batch", remedy="give all the same channels")
    shape = (len(lengths), int(lengths.max()))
    times = np.zeros(shape)
    values = np.full((*shape, channels.pop()), np.nan, np.float32)
    for row, (t, v) in enumerate(zip(all_times, all_values, strict=True)):
        _refuse_too_large(v)
        n = len(t)
        if n:
            times[row, :n], times[row, n:] = t, t[-1]
            values[row, :n] = v
    padded = torch.from_numpy(values)
    missing = padded.isnan()
    # many times faster than an assignment through a mask
    padded.nan_to_num_(nan=0.0)
    return torch.from_numpy(times), padded, missing.logical_not_(), torch.from_numpy(lengths)


def collate_events(sequences: Sequence[EventSequence]) -> EventBatch:
    """Pad event sequences to the longest."""
    if len(sequences) == 0:
        raise DataError("a batch of no sequences", remedy="pass at least one")
    bare = sequences[0].features is None
    if any((s.features is None) != bare for s in sequences):
        raise DataError(
            "some sequences of the batch have features and some do not", remedy="use NaN for what is unknown"
        )
    extra = [np.zeros((len(s), 0), np.float32) if s.features is None else s.features for s in sequences]
    times, features, known, lengths = _padded([s.times for s in sequences], extra)
    mask = torch.arange(times.shape[1]) < lengths[:, None]
    types = torch.zeros(times.shape, dtype=torch.int64)
    types[mask] = torch.from_numpy(np.concatenate([s.types for s in sequences]))
    ids = tuple(s.id for s in sequences)
    return EventBatch(times, types, mask, None if bare else features, None if bare else known, ids=ids)

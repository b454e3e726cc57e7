"""Series side by side in padded tensors: what a model sees. The one place where padding happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from contiformer.data.errors import DataError
from contiformer.data.series import Label, Series


@dataclass(frozen=True)
class Batch:
    """Series in the order they came, none dropped, none sorted.

    Attributes:
        times: [B, L] float64; padding repeats the last time of its series.
        values: [B, L, C], 0 where not observed.
        observed: [B, L, C], True where a channel was observed; False in the padding.
        lengths: [B], the number of points of each series.
        static: [B, S], 0 where unknown, with static_observed [B, S].
        label: [B], numbers of classes (int64) or values (float64).
        target_times, target_values, target_observed, target_lengths: the series to predict, padded in the same way.
        weight: [B], how much each series counts in a loss; None: all the same.
        ids: the names of the series.
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

    def __len__(self) -> int:
        """The number of series."""
        return self.times.shape[0]

    @property
    def mask(self) -> Bool[Tensor, "batch points"]:
        """True at points, False in the padding."""
        return torch.arange(self.times.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def __getitem__(self, which: slice) -> Batch:
        """Some of the series; the padding stays as it is."""
        return self._each(lambda tensor: tensor[which], self.ids[which])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """On another device. Times become float32 on one that has no float64 (mps)."""
        no_double = torch.device(device).type == "mps"

        def move(tensor: Tensor) -> Tensor:
            kept = tensor.float() if no_double and tensor.dtype == torch.float64 else tensor
            return kept.to(device, non_blocking=non_blocking)

        return self._each(move, self.ids)

    def pin_memory(self) -> Batch:
        """In page-locked memory, as a DataLoader with ``pin_memory=True`` asks for."""
        return self._each(Tensor.pin_memory, self.ids)

    def _each(self, change: Any, ids: tuple[Any, ...]) -> Batch:
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "ids"}
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in tensors.items()}
        return Batch(**changed, ids=ids)


def collate(series: Sequence[Series], classes: Sequence[Label] | None = None) -> Batch:
    """Pad to the longest.

    Args:
        series: with the same channels each.
        classes: labels are numbered by their place in this list; None: labels are values.

    Example:
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
        target = _padded(
            [_given(s.target_times, "a target") for s in series], [_given(s.target_values, "a target") for s in series]
        )
    label = _labels([s.label for s in series], classes)
    ids = tuple(s.id for s in series)
    return Batch(times, values, observed, lengths, static, static_observed, label, *target, ids=ids)


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
        raise DataError(f"the label {unknown[0]!r} is none of the classes {tuple(classes)}")
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
    for one in all_values:
        _refuse_too_large(one)
    for row, (t, v) in enumerate(zip(all_times, all_values, strict=True)):
        n = len(t)
        if n:
            times[row, :n], times[row, n:] = t, t[-1]
            values[row, :n] = v
    padded = torch.from_numpy(values)
    missing = padded.isnan()
    # many times faster than an assignment through a mask
    padded.nan_to_num_(nan=0.0)
    return torch.from_numpy(times), padded, missing.logical_not_(), torch.from_numpy(lengths)

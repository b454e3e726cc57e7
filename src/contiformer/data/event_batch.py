"""Event sequences side by side in padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence


@dataclass(frozen=True)
class EventBatch:
    """Event sequences side by side, in the order they came.

    Attributes:
        times: [B, L] float64; padding repeats the last time.
        types: [B, L] int64, 0 in the padding.
        mask: [B, L], True at events.
        features: [B, L, F], 0 where unknown, with features_observed.
        weight: [B], how much each sequence counts in a loss; None: all the same.
    """

    times: Float64[Tensor, "batch events"]
    types: Int64[Tensor, "batch events"]
    mask: Bool[Tensor, "batch events"]
    features: Float[Tensor, "batch events features"] | None = None
    features_observed: Bool[Tensor, "batch events features"] | None = None
    weight: Float[Tensor, " batch"] | None = None
    ids: tuple[Any, ...] = ()

    def __len__(self) -> int:
        """The number of sequences."""
        return self.times.shape[0]

    @property
    def lengths(self) -> Int64[Tensor, " batch"]:
        """The number of events of each sequence."""
        return self.mask.sum(1)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> EventBatch:
        """On another device. Times become float32 on one that has no float64 (mps)."""
        no_double = torch.device(device).type == "mps"

        def move(tensor: Tensor) -> Tensor:
            kept = tensor.float() if no_double and tensor.dtype == torch.float64 else tensor
            return kept.to(device, non_blocking=non_blocking)

        return self._each(move)

    def pin_memory(self) -> EventBatch:
        """In page-locked memory, as a DataLoader with ``pin_memory=True`` asks for."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> EventBatch:
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "ids"}
        changed: dict[str, Any] = {name: change(x) for name, x in tensors.items() if x is not None}
        return replace(self, **changed)


def collate_events(sequences: Sequence[EventSequence]) -> EventBatch:
    """Pad to the longest."""
    if len(sequences) == 0:
        raise DataError("a batch of no sequences", remedy="pass at least one")
    shape = (len(sequences), max(map(len, sequences)))
    times, types, mask = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool)
    first = sequences[0].features
    extra = None if first is None else np.full((*shape, first.shape[1]), np.nan, np.float32)
    for row, sequence in enumerate(sequences):
        n = len(sequence)
        if n:
            times[row, :n], times[row, n:] = sequence.times, sequence.times[-1]
            types[row, :n], mask[row, :n] = sequence.types, True
        if (sequence.features is None) != (extra is None):
            raise DataError("some sequences of the batch have features and some do not")
        if extra is not None:
            extra[row, :n] = sequence.features
    ids = tuple(s.id for s in sequences)
    features = known = None
    if extra is not None:
        features, known = torch.from_numpy(np.nan_to_num(extra)), torch.from_numpy(~np.isnan(extra))
    as_tensor = torch.from_numpy
    return EventBatch(as_tensor(times), as_tensor(types), as_tensor(mask), features, known, ids=ids)

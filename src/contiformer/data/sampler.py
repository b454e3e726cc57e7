"""Batches of similar length, in an order that a seed and an epoch determine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from contiformer.data.errors import DataError

#: Items are sorted by length within pools of this many batches: little padding, and still different batches each epoch.
POOL = 50


class BucketSampler(Sampler[list[int]]):
    """A batch sampler for ``torch.utils.data.DataLoader(batch_sampler=...)``.

    Every epoch visits each item once. The order depends on ``seed`` and the epoch only, which :meth:`set_epoch` sets,
    as for torch's own ``DistributedSampler``. The sampler remembers nothing else: with workers a loader asks for
    batches long before they are used, so only who uses them knows the place (:class:`~contiformer.data.Loader` does).

    Args:
        lengths: points of each item.
        batch_size: items in a batch; the last one may be smaller.
        seed: of the order.
        shuffle: False: items in their order, batch after batch, the same in every epoch.
        blocks: items that are read together (``SeriesSet.blocks``); blocks are visited one after another.

    Example:
        >>> sampler = BucketSampler([3, 1, 2, 9], batch_size=2, shuffle=False)
        >>> list(sampler)
        [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        blocks: ArrayLike | None = None,
    ) -> None:
        if batch_size < 1 or seed < 0:
            raise DataError(f"batch_size is {batch_size} and seed {seed}", remedy="pass 1 or more, and 0 or more")
        self.lengths: Int64[np.ndarray, " n"] = np.asarray(lengths, np.int64)
        self.blocks = np.zeros_like(self.lengths) if blocks is None else np.asarray(blocks, np.int64)
        if self.blocks.shape != self.lengths.shape:
            raise DataError(f"{len(self.lengths)} lengths but {len(self.blocks)} blocks")
        self.batch_size, self.seed, self.shuffle = batch_size, seed, shuffle
        self.epoch = self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose an epoch, and the batch in it to begin with."""
        self.epoch, self.start = epoch, start

    @property
    def per_epoch(self) -> int:
        """Batches in a whole epoch."""
        counts = np.unique(self.blocks, return_counts=True)[1] if self.shuffle else np.array([len(self.lengths)])
        return int(np.ceil(counts / self.batch_size).sum())

    def __len__(self) -> int:
        """Batches from the chosen one on."""
        return max(0, self.per_epoch - self.start)

    def __iter__(self) -> Iterator[list[int]]:
        """The epoch, from the chosen batch on."""
        return iter([batch.tolist() for batch in self._batches()[self.start :]])

    def _batches(self) -> list[NDArray[np.int64]]:
        if not self.shuffle:
            return _cut(np.arange(len(self.lengths)), self.batch_size)
        rng = np.random.default_rng([self.seed, self.epoch])
        by_block = np.argsort(self.blocks, kind="stable")
        members = np.split(by_block, np.flatnonzero(np.diff(self.blocks[by_block])) + 1) if len(by_block) else []
        batches: list[NDArray[np.int64]] = []
        for block in rng.permutation(len(members)):
            inside: list[NDArray[np.int64]] = []
            for pool in _cut(rng.permutation(members[block]), POOL * self.batch_size):
                inside += _cut(pool[np.argsort(self.lengths[pool], kind="stable")], self.batch_size)
            batches += [inside[i] for i in rng.permutation(len(inside))]
        return batches


def _cut(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[start : start + size] for start in range(0, len(order), size)]

"""Batches of similar length, in an order that a seed and an epoch determine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from contiformer.data.errors import DataError

#: Items are sorted by length within pools of this many batches: little padding, and still different batches each epoch.
POOL = 50


class BucketSampler(Sampler[list[int]]):
    """A batch sampler for ``torch.utils.data.DataLoader(batch_sampler=...)``.

    Every epoch visits each item once. The order depends on ``seed`` and ``epoch`` only; :meth:`state_dict` remembers
    the place in it, and a sampler that loads the state goes on with the next batch.

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
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}", remedy="pass 1 or more")
        self.lengths: Int64[np.ndarray, " n"] = np.asarray(lengths, np.int64)
        self.blocks = np.zeros_like(self.lengths) if blocks is None else np.asarray(blocks, np.int64)
        if self.blocks.shape != self.lengths.shape:
            raise DataError(f"{len(self.lengths)} lengths but {len(self.blocks)} blocks")
        self.batch_size, self.seed, self.shuffle = batch_size, seed, shuffle
        self.epoch = 0
        self.position = 0

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        counts = np.unique(self.blocks, return_counts=True)[1] if self.shuffle else np.array([len(self.lengths)])
        return int(np.ceil(counts / self.batch_size).sum())

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the epoch, then the next one is set."""
        batches = self._batches()
        while self.position < len(batches):
            # counted before it is handed out: a state saved while it is worked on does not repeat it
            self.position += 1
            yield batches[self.position - 1].tolist()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where in which order."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, "batch_size": self.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the data and the batch size have to be the same."""
        if state["batch_size"] != self.batch_size:
            raise DataError(
                f"the saved order has batches of {state['batch_size']}, this sampler of {self.batch_size}",
                remedy="resume with the same batch size",
            )
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]

    def _batches(self) -> list[NDArray[np.int64]]:
        count = len(self.lengths)
        if not self.shuffle:
            return _cut(np.arange(count), self.batch_size)
        rng = np.random.default_rng([self.seed, self.epoch])
        batches: list[NDArray[np.int64]] = []
        for block in rng.permutation(np.unique(self.blocks)):
            inside: list[NDArray[np.int64]] = []
            for pool in _cut(rng.permutation(np.flatnonzero(self.blocks == block)), POOL * self.batch_size):
                inside += _cut(pool[np.argsort(self.lengths[pool], kind="stable")], self.batch_size)
            batches += [inside[i] for i in rng.permutation(len(inside))]
        return batches


def _cut(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[start : start + size] for start in range(0, len(order), size)]

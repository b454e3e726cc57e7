"""Batches by epoch: sampling by length, shares of several processes, and resuming within an epoch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import ArrayLike, NDArray
from torch import distributed
from torch.utils.data import DataLoader, Sampler

from contiformer.data.batch import Batch, EventBatch, collate, collate_events
from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet

#: Items are sorted by length within pools of this many batches: little padding, and still different batches each epoch.
POOL = 50


class BucketSampler(Sampler[list[int]]):
    """A batch sampler for ``torch.utils.data.DataLoader(batch_sampler=...)``.

    Every epoch visits each item once, in batches of similar length. The order depends on ``seed`` and the epoch only,
    which :meth:`set_epoch` sets, as for torch's own ``DistributedSampler``.

    Args:
        lengths: points of each item.
        batch_size: items in a batch; the last one may be smaller.
        shuffle: False: items in their order, the same in every epoch.
        blocks: items that are read together (``SeriesSet.blocks``); blocks are visited one after another.

    Example:
        >>> from contiformer.data import BucketSampler
        >>> list(BucketSampler([5, 9, 5, 9], batch_size=2, shuffle=False))
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
            raise DataError(f"batch_size must be 1 or more and seed 0 or more, got {batch_size} and {seed}")
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


class Loader:
    """Batches of a set; each iteration is one epoch, and :meth:`state_dict` resumes within an epoch.

    Args:
        data: a set of series or of event sequences.
        batch_size, seed, shuffle: as for :class:`BucketSampler`.
        num_workers: processes that read ahead. Lazy sets are read in fresh processes ("spawn"), because polars does
            not survive a fork.
        pin_memory: for copies to a GPU.
        shared: with ``torch.distributed``, each process gets its share of every batch, so that a step sees the same
            series as with one process. A process without a share gets a series with weight 0. False: every process
            sees everything.

    Example:
        >>> from contiformer.data import Loader, Series, SeriesSet
        >>> data = SeriesSet([Series.of([0.0], [[n]], id=n) for n in range(5)])
        >>> [batch.ids for batch in Loader(data, batch_size=2, shuffle=False)]
        [(0, 1), (2, 3), (4,)]
    """

    def __init__(
        self,
        data: SeriesSet | EventSet,
        batch_size: int = 64,
        *,
        seed: int = 0,
        shuffle: bool = True,
        num_workers: int = 0,
        pin_memory: bool = False,
        shared: bool = False,
    ) -> None:
        self.data = data
        self.order = BucketSampler(data.lengths, batch_size, seed=seed, shuffle=shuffle, blocks=data.blocks)
        self.num_workers, self.pin_memory, self.shared = num_workers, pin_memory, shared
        self.epoch = self.position = 0

    def __len__(self) -> int:
        """Batches in a whole epoch, for this process."""
        if self.order.shuffle:
            return self.order.per_epoch
        return len(self._shares(start=0))

    def _shares(self, start: int) -> list[tuple[list[int], bool]]:
        """This process's part of each batch from ``start`` on, and whether it counts."""
        rank, world = _place() if self.shared else (0, 1)
        self.order.set_epoch(self.epoch, start)
        shares = [(batch[rank::world], True) if rank < len(batch) else (batch[:1], False) for batch in self.order]
        if self.order.shuffle:
            return shares
        return [share for share in shares if share[1]] or shares[:1]

    def __iter__(self) -> Iterator[Batch | EventBatch]:
        """The rest of the epoch."""
        shares = self._shares(self.position)
        classes = None if isinstance(self.data, EventSet) else self.data.classes
        together: Any = collate_events if isinstance(self.data, EventSet) else partial(collate, classes=classes)
        loader: DataLoader[Any] = DataLoader(
            self.data,  # type: ignore[arg-type]
            batch_sampler=[mine for mine, _ in shares],
            collate_fn=together,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            multiprocessing_context="spawn" if self.num_workers and self.data.lazy else None,
            worker_init_fn=_ignore_interrupts,
            # seeds of workers, which would be drawn from the global random state
            generator=torch.Generator(),
        )
        end = self.position + len(shares)
        for batch, (_, counts) in zip(loader, shares, strict=True):
            # counted before it is handed out: a state saved while it is worked on does not repeat it
            self.position += 1
            if self.position == end:
                self.epoch, self.position = self.epoch + 1, 0
            yield batch if counts else replace(batch, weight=torch.zeros(len(batch)))

    def state_dict(self) -> dict[str, Any]:
        """Epoch, position and options of the order."""
        return {"epoch": self.epoch, "position": self.position, **self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume; the data and the options have to be the same."""
        for name, mine in self._order().items():
            if state.get(name) != mine:
                problem = f"the saved order has {name} {state.get(name)}, this loader {mine}"
                raise DataError(problem, remedy="resume with the same data and options")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])

    def _order(self) -> dict[str, Any]:
        options = {name: getattr(self.order, name) for name in ("batch_size", "seed", "shuffle")}
        return {"items": len(self.order.lengths), **options}


def _place() -> tuple[int, int]:
    """Number of this process, and of all of them."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _ignore_interrupts(_: int) -> None:
    """Ctrl-C reaches all processes of a terminal; a reader that died of it would take the training with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a handler of the main process that came with the fork would keep this one alive
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

"""Batches of a set, epoch after epoch, that can go on where they were."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader

from contiformer.data.batch import Batch, collate
from contiformer.data.errors import DataError
from contiformer.data.event_batch import EventBatch, collate_events
from contiformer.data.events import EventSet
from contiformer.data.sampler import BucketSampler
from contiformer.data.series_set import SeriesSet


class Loader:
    """Iterate for one epoch; iterate again for the next.

    :meth:`state_dict` tells how many batches were handed out, whatever workers have read ahead. A loader that loads the
    state goes on with the next batch, and what comes is what would have come.

    Args:
        data: a set of series or of event sequences.
        batch_size, seed, shuffle: as for :class:`BucketSampler`.
        num_workers: processes that read ahead. Sets that are not in memory are read in fresh processes ("spawn"),
            because what reads them does not survive a fork.
        pin_memory: for copies to a GPU.

        shared: where several processes work together (``torch.distributed``), each gets its share of every batch, so
            that a step sees the same series as with one process. No series is lost or seen twice. A process without a
            share in a batch of a shuffled epoch, or in any batch of an ordered one, gets a series with weight 0: it has
            to take part. False: every process sees everything.

    Example:
        >>> from contiformer.data import Series, SeriesSet
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
        together: Any = (
            collate_events if isinstance(self.data, EventSet) else partial(collate, classes=self.data.schema.classes)
        )
        loader: DataLoader[Any] = DataLoader(
            self.data,  # type: ignore[arg-type]
            batch_sampler=[mine for mine, _ in shares],
            collate_fn=together,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            multiprocessing_context="spawn" if self.num_workers and self.data.lazy else None,
            worker_init_fn=_leave_signals_to_the_main_process,
        )
        end = self.position + len(shares)
        for batch, (_, counts) in zip(loader, shares, strict=True):
            # counted before it is handed out: a state saved while it is worked on does not repeat it
            self.position += 1
            if self.position == end:
                self.epoch, self.position = self.epoch + 1, 0
            yield batch if counts else replace(batch, weight=torch.zeros(len(batch)))

    def state_dict(self) -> dict[str, Any]:
        """Where in which order."""
        return {"epoch": self.epoch, "position": self.position, **self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the data and the options have to be the same."""
        for name, mine in self._order().items():
            if state.get(name) != mine:
                raise DataError(
                    f"the saved order has {name} {state.get(name)}, this loader {mine}",
                    remedy="resume with the same data and options",
                )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])

    def _order(self) -> dict[str, Any]:
        order = self.order
        return {
            "items": len(order.lengths),
            "batch_size": order.batch_size,
            "seed": order.seed,
            "shuffle": order.shuffle,
        }


def _place() -> tuple[int, int]:
    """Number of this process, and of all of them."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _leave_signals_to_the_main_process(_: int) -> None:
    """Ctrl-C reaches all processes of a terminal; a reader that died of it would take the training with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a handler of the main process that came with the fork would keep this one alive
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

"""The cost of the paper's algorithm, which needs gigabytes: predicted first, then measured as far as it fits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from contiformer.benchmarks.contenders import Shape
from contiformer.benchmarks.memory import SHARE_OF_FREE, Cost, Job, available_mb, cost_in_fresh_process

#: Small enough to fit anywhere, large enough to tell the memory of a pair.
PROBE_LENGTH = 40


@dataclass(frozen=True)
class PairwiseCost:
    """Time and memory; ``at_once`` sequences were worked on at a time (the whole batch: its size)."""

    cost: Cost
    at_once: int


@dataclass(frozen=True)
class PairwiseRunner:
    """Runs the paper's algorithm in fresh processes, on as many sequences at a time as fit in memory."""

    mb_per_pair: float
    threads: int | None = None

    @classmethod
    def probe(cls, threads: int | None = None) -> PairwiseRunner:
        """Learn from a small problem how much memory a pair takes."""
        shape = Shape(1, PROBE_LENGTH)
        peak = cost_in_fresh_process(Job("pairwise", shape, threads=threads)).peak_mb
        return cls((peak or 0.0) / shape.pairs, threads)

    def fits(self, shape: Shape) -> int:
        """How many sequences of this length fit in memory at a time, at most all."""
        free = available_mb()
        one = self.mb_per_pair * shape.length**2
        most = inf if free is None or one == 0 else SHARE_OF_FREE * free // one
        return int(min(most, shape.batch))

    def measure(self, shape: Shape, budget: float = 0.0, timeout: float = 600.0) -> PairwiseCost:
        """Forward and backward of the whole batch, in portions if it must be."""
        at_once = max(1, self.fits(shape))
        while True:
            job = Job("pairwise", shape, at_once=at_once, budget=budget, against_ours=True, threads=self.threads)
            cost = cost_in_fresh_process(job, timeout=timeout)
            if cost.peak_mb is not None or cost.seconds is not None or at_once == 1:
                return PairwiseCost(cost, at_once)
            at_once //= 2

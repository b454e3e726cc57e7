"""Time several calls fairly on a machine that is not quiet.

Every repeat times each contender once, one after the other, and the order turns round from repeat to repeat, so that
load from elsewhere and drift of the clock hit all of them alike. A ratio is the *median of the ratios within each
repeat*: it compares only times that were taken next to each other, and a few disturbed repeats do not move it. A single
contender's time is the median over the repeats.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

Call = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timings:
    """Seconds of every contender, one number for each repeat."""

    seconds: dict[str, list[float]]

    @property
    def repeats(self) -> int:
        """Number of times that each contender was timed."""
        return min(map(len, self.seconds.values()), default=0)

    def milliseconds(self, name: str) -> float:
        """Median over the repeats."""
        return 1000 * median(self.seconds[name])

    def fastest_milliseconds(self, name: str) -> float:
        """Shortest of the repeats."""
        return 1000 * min(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Median of the ratios within each repeat."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))


def interleave(
    contenders: Mapping[str, Call],
    *,
    budget: float,
    at_least: int = 5,
    at_most: int = 300,
    warm_up: int = 2,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Time the contenders in turn until ``budget`` seconds are used up, after ``warm_up`` calls of each.

    The number of repeats follows from the budget, within ``at_least`` and ``at_most``.
    """
    for _ in range(warm_up):
        for call in contenders.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    spent = 0.0
    for repeat in range(at_most):
        if repeat >= at_least and spent * (repeat + 1) / repeat > budget:
            break
        for name in order:
            took = timed(contenders[name], clock)
            seconds[name].append(took)
            spent += took
        order.reverse()
    return Timings(seconds)


def timed(call: Call, clock: Clock = time.perf_counter) -> float:
    """Seconds that one call takes, with the garbage collector kept out of it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        call()
        return clock() - start
    finally:
        if collecting:
            gc.enable()

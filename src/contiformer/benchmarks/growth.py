"""How time and memory grow with the length of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contiformer.benchmarks.contenders import Contender, Shape, make_call
from contiformer.benchmarks.memory import Job, cost_in_fresh_process
from contiformer.benchmarks.pairwise_cost import PairwiseRunner
from contiformer.benchmarks.timing import interleave

FULL_GROWTH = (30, 60, 125, 250, 500, 1000, 2000, 4000)
QUICK_GROWTH = (30, 125, 500)
#: The paper's algorithm is followed while one pass takes less than this many seconds and fits in memory.
PATIENCE = 20.0
BUDGET = 1.5


@dataclass(frozen=True)
class GrowthPoint:
    """Time and peak memory of one contender at one length; None where it is not known."""

    contender: Contender
    length: int
    milliseconds: float | None
    peak_mb: float | None


def measure_growth(
    lengths: tuple[int, ...],
    pairwise: bool = True,
    threads: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> tuple[GrowthPoint, ...]:
    """Forward and backward of one sequence, for ours, torch's layer, and the paper's algorithm while it can."""
    points: list[GrowthPoint] = []
    runner = PairwiseRunner.probe(threads) if pairwise and lengths else None
    for length in lengths:
        notify(f"growth: {length}")
        shape = Shape(1, length)
        contenders: tuple[Contender, ...] = ("ours", "layer")
        calls = {str(name): make_call(name, shape) for name in contenders}
        timings = interleave(calls, budget=BUDGET, at_least=3, warm_up=1)
        for name in contenders:
            peak = cost_in_fresh_process(Job(name, shape, threads=threads)).peak_mb
            points.append(GrowthPoint(name, length, timings.milliseconds(name), peak))
        if runner is not None and can_follow(points, shape, runner):
            cost = runner.measure(shape, BUDGET, timeout=6 * PATIENCE).cost
            if cost.seconds is None:
                runner = None
            else:
                points.append(GrowthPoint("pairwise", length, 1000 * cost.seconds, cost.peak_mb))
    return tuple(points)


def can_follow(points: list[GrowthPoint], shape: Shape, runner: PairwiseRunner) -> bool:
    """Whether the paper's algorithm fits, and will take less than :data:`PATIENCE` if its time grows with the pairs."""
    known = [p for p in points if p.contender == "pairwise" and p.milliseconds is not None]
    expected = 0.0
    if known:
        last = known[-1]
        assert last.milliseconds is not None
        expected = last.milliseconds / 1000 * (shape.length / last.length) ** 2
    return runner.fits(shape) > 0 and expected < PATIENCE

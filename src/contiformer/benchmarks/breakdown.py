"""Where the time of continuous attention goes, and how far its products are from what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from contiformer.benchmarks.contenders import Data, Shape, make_module
from contiformer.benchmarks.phases import BACKWARD, OTHER, PHASES, Ledger, Meter, watched
from contiformer.benchmarks.products import ProductCounter
from contiformer.benchmarks.timing import timed


@dataclass(frozen=True)
class PhaseCost:
    """One phase of a pass: its time, the operations of its matrix products, and the time they would take at best."""

    phase: str
    milliseconds: float
    gflop: float
    milliseconds_at_limit: float


@dataclass(frozen=True)
class Breakdown:
    """A pass forward and back, phase by phase."""

    shape: Shape
    limit_gflops: float
    phases: tuple[PhaseCost, ...]

    @property
    def total(self) -> PhaseCost:
        """All phases together."""
        columns = [(p.milliseconds, p.gflop, p.milliseconds_at_limit) for p in self.phases]
        return PhaseCost("total", *map(sum, zip(*columns)))

    def document(self) -> dict[str, Any]:
        """As it is written to JSON."""
        rows = [asdict(part) for part in (*self.phases, self.total)]
        return {**asdict(self.shape), "limit_gflops": self.limit_gflops, "phases": rows}


def break_down(shape: Shape, limit_gflops: float, budget: float = 2.0) -> Breakdown:
    """Time and number of operations of each phase of ours, in the fastest pass of several.

    The limit is that of :func:`~contiformer.benchmarks.products.matmul_gflops`.
    """
    # compiled kernels cannot be counted, but they are for float32 only
    with ProductCounter() as counter:
        operations = _metered_pass(shape, torch.float64)(lambda: counter.operations)
    run = _metered_pass(shape, torch.float32)
    first = timed(lambda: run(time.perf_counter))
    repeats = max(3, min(100, int(budget / max(first, 1e-9))))
    fastest = min((run(time.perf_counter) for _ in range(repeats)), key=lambda sample: sum(sample.values()))
    costs = []
    for phase in PHASES:
        gflop = operations.get(phase, 0.0) / 1e9
        milliseconds = 1000 * fastest.get(phase, 0.0)
        costs.append(PhaseCost(phase, milliseconds, gflop, 1000 * gflop / limit_gflops))
    return Breakdown(shape, limit_gflops, tuple(costs))


def _metered_pass(shape: Shape, dtype: torch.dtype) -> Callable[[Meter], dict[str, float]]:
    """A pass forward and back that tells what the meter gained in each phase."""
    module, data = make_module("ours", shape).to(dtype), Data.of(shape)
    x, gradient = data.x.detach().to(dtype).requires_grad_(), data.gradient.to(dtype)
    inputs = [x, *module.parameters()]

    def run(meter: Meter) -> dict[str, float]:
        ledger = Ledger(meter)
        with watched(ledger):
            out = module(x, data.times)
            ledger.enter(BACKWARD + OTHER)
            torch.autograd.grad(out, inputs, gradient)
            ledger.enter(OTHER)
        return ledger.gained

    return run

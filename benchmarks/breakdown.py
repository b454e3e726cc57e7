"""Time of continuous attention by phase, and how far its matrix products are from the machine's limit.

Functions of the implementation are wrapped while a pass runs, and what a meter (a clock, a counter of operations) gains
goes to the phase of the innermost of them. A function that is not there under its name is left out: its share then
appears in the phase around it.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.contenders import Data, Shape, make_module
from benchmarks.timing import timed

Meter = Callable[[], float]

ODE, ATTENTION, OTHER = "ODE", "scores and values", "projections and rest"
BACKWARD = "backward: "
PHASES = (ODE, ATTENTION, OTHER, BACKWARD + ODE, BACKWARD + ATTENTION, BACKWARD + OTHER)

#: Functions of the forward pass and the phase they belong to.
FORWARD = {
    "contiformer.native.sweep:solve": ODE,
    "contiformer.nn.fused_knots:fused_attention": ATTENTION,
    # the listing, which runs where operations are counted
    "contiformer.nn.reference:solve_trajectories": ODE,
    "contiformer.nn.attention:attend": ATTENTION,
}
#: What the name of a hand-written backward pass says about the phase it belongs to.
BACKWARD_NAMES = {"sweep": BACKWARD + ODE, "attention": BACKWARD + ATTENTION}
#: Products and the place of their first factor among the arguments.
FIRST_FACTOR = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


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
        """The breakdown for JSON."""
        rows = [asdict(part) for part in (*self.phases, self.total)]
        return {**asdict(self.shape), "limit_gflops": self.limit_gflops, "phases": rows}


def break_down(shape: Shape, limit_gflops: float, budget: float = 2.0) -> Breakdown:
    """Time and number of operations of each phase of ours, in the fastest pass of several.

    The limit is that of :func:`matmul_gflops`.
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


class ProductCounter(TorchDispatchMode):
    """While this lasts, counts the additions and multiplications of all matrix products, in place or not."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and call the operation."""
        first = FIRST_FACTOR.get(func._overloadpacket.__name__.removesuffix("_"))
        if first is not None:
            a, b = args[first], args[first + 1]
            self.operations += 2 * a.numel() * (b.shape[-1] if b.dim() > 1 else 1)
        return func(*args, **(kwargs or {}))


def matmul_gflops(size: int = 1024, repeats: int = 10) -> float:
    """The most that this machine does in products of float32 matrices, in 10^9 operations a second."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    fastest = min(timed(lambda: a @ b) for _ in range(repeats))
    return 2 * size**3 / fastest / 1e9


class Ledger:
    """Gains of a meter by phase."""

    def __init__(self, meter: Meter) -> None:
        self.gained: dict[str, float] = defaultdict(float)
        self._meter, self._last, self._phase = meter, meter(), OTHER

    def enter(self, phase: str) -> str:
        """From now on it is this phase; returns the one before."""
        now = self._meter()
        self.gained[self._phase] += now - self._last
        before, self._phase, self._last = self._phase, phase, now
        return before

    def wrap(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """The function, its gains put down to the phase; within a backward pass everything belongs to that."""

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            inside_backward = self._phase.startswith(BACKWARD) and not phase.startswith(BACKWARD)
            before = self.enter(self._phase if inside_backward else phase)
            try:
                return function(*arguments, **named)
            finally:
                self.enter(before)

        return wrapped


@contextmanager
def watched(ledger: Ledger) -> Iterator[None]:
    """While this lasts, the implementation reports to the ledger."""
    undo: list[Callable[[], None]] = []
    try:
        for owner, name, phase in _watchable():
            raw = vars(owner)[name]
            setattr(owner, name, _rewrapped(raw, functools.partial(ledger.wrap, phase=phase)))
            undo.append(functools.partial(setattr, owner, name, raw))
        yield
    finally:
        for restore in reversed(undo):
            restore()


def _watchable() -> Iterator[tuple[Any, str, str]]:
    """(module or class, name, phase) of every function that is there."""
    for place, phase in FORWARD.items():
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        try:
            owner = functools.reduce(getattr, owners, importlib.import_module(module))
        except (ImportError, AttributeError):
            continue
        if name in vars(owner):
            yield owner, name, phase
    for function in torch.autograd.Function.__subclasses__():
        name = f"{function.__module__}.{function.__qualname__}".lower()
        if name.startswith("contiformer.") and "backward" in vars(function):
            known = (phase for part, phase in BACKWARD_NAMES.items() if part in name)
            yield function, "backward", next(known, BACKWARD + OTHER)


def _rewrapped(raw: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """Wrap a function that may be bound to its class."""
    if isinstance(raw, classmethod | staticmethod):
        return type(raw)(wrap(raw.__func__))
    return wrap(raw)

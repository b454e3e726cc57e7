"""Put what a meter shows (a clock, a counter of operations) down to the phases of a pass.

Functions of the implementation are wrapped while the pass runs, and what the meter gains goes to the innermost of
them. A function that is not there under its name is left out: its share then appears in the phase around it.
"""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Meter = Callable[[], float]

ODE, ATTENTION, OTHER = "ODE", "scores and values", "projections and rest"
BACKWARD = "backward: "
PHASES = (ODE, ATTENTION, OTHER, BACKWARD + ODE, BACKWARD + ATTENTION, BACKWARD + OTHER)

#: Functions of the forward pass and the phase they belong to.
FORWARD = {
    "contiformer.nn.attention:ContinuousAttention._trajectories": ODE,
    "contiformer.nn.attention:spectral_attention": ATTENTION,
}
#: What the name of a hand-written backward pass says about the phase it belongs to.
BACKWARD_NAMES = {"sweep": BACKWARD + ODE, "attention": BACKWARD + ATTENTION}


class Ledger:
    """What the meter gained in each phase."""

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

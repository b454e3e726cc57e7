"""Fixed-step ODE solver in which every element of a batch has its own duration and number of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contiformer.backbones.base import States
from contiformer.native.rivals.ode_rnn import Steps
from contiformer.paths.runge_kutta import Method, runge_kutta_step

Field = Callable[[Tensor], Tensor]


class FlowOptions(TypedDict, total=False):
    """Options of :class:`Flow`."""

    solver: Method
    step: float
    max_steps: int


class Flow:
    """Solves ``dh/dt = f(h)`` by fixed steps, each element of a batch over its own duration in its own number of them.

    An element that has arrived takes steps of length 0 until the others have. With the same number of steps for a whole
    batch, as in torchdiffeq, the accuracy of a series would depend on its batch mates.

    Args:
        solver: "rk4", "midpoint" or "euler".
        step: the longest step; a duration is cut into equal ones.
        max_steps: steps in one duration at most: longer ones have longer steps.
    """

    def __init__(self, solver: Method = "rk4", step: float = 0.1, max_steps: int = 20) -> None:
        if solver not in get_args(Method):
            raise ValueError(f"solver must be one of {', '.join(get_args(Method))}, got {solver!r}")
        if not step > 0 or max_steps < 1:
            raise ValueError(f"step and max_steps must be positive, got {step} and {max_steps}: use 0.1 and 20")
        self.solver, self.step, self.max_steps = solver, step, max_steps

    def __call__(self, field: Field, state: States, durations: Float[Tensor, "batch query"]) -> States:
        for duration in self.steps(durations.unsqueeze(0), state.dtype)[0]:
            state = self.advance(field, state, duration)
        return state

    def steps(self, durations: Float[Tensor, "rows batch *more"], dtype: torch.dtype) -> list[list[Tensor]]:
        """For each row the lengths of its steps, each [batch, *more, 1]; none where all durations are 0."""
        count, length = self._divide(durations)
        most = count.flatten(1).amax(1).tolist() if count.numel() else [0] * len(count)
        first = length.unsqueeze(-1).to(dtype).unbind(0)
        return [
            [one if k == 0 else torch.where(k < n.unsqueeze(-1), one, 0.0) for k in range(int(top))]
            for one, n, top in zip(first, count.unbind(0), most, strict=True)
        ]

    def plan(self, durations: Float[Tensor, "batch rows"]) -> Steps:
        """The same for the kernel: how many steps, and how long."""
        count, length = self._divide(durations)
        if count.isnan().any():
            raise ValueError("times of rows and queries must be numbers, got nan")
        return Steps(count.long(), length, self.solver)

    def _divide(self, durations: Tensor) -> tuple[Tensor, Tensor]:
        """Number and length of the steps."""
        # a duration of 3 steps is 3 steps, however it was rounded
        count = (durations / self.step - 1e-6).ceil().clamp(1, self.max_steps) * (durations > 0)
        return count, durations / count.clamp(min=1)

    def advance(self, field: Field, h: Tensor, step: Tensor) -> Tensor:
        """One step."""
        return runge_kutta_step(lambda x, _: field(x), h, step, self.solver)


def states_along(flow: Flow, field: Field, start: Tensor, since: Float[Tensor, "batch query"]) -> States:
    """The solution of ``dz/dt = f(z)`` from ``start`` [B, d] at times ``since`` the start, which may be negative.

    It is solved once in at most ``flow.max_steps`` steps each way; from the last step before it each query goes on by
    itself, so that no query depends on another.
    """
    later = _one_way(flow, field, start, since)
    if not bool((since < 0).any()):
        return later
    earlier = _one_way(flow, lambda z: -field(z), start, -since)
    return torch.where((since < 0).unsqueeze(-1), earlier, later)


def _one_way(flow: Flow, field: Field, start: Tensor, since: Tensor) -> Tensor:
    since = since.clamp(min=0)
    passed = (since / flow.step).floor().clamp(max=flow.max_steps)
    step = torch.full_like(start[:, :1], flow.step)
    grid = [start]
    for _ in range(int(passed.max()) if passed.numel() else 0):
        grid.append(flow.advance(field, grid[-1], step))
    which = passed.long().unsqueeze(-1).expand(-1, -1, start.shape[-1])
    return flow(field, torch.stack(grid, dim=1).gather(1, which), since - passed * flow.step)


@dataclass(frozen=True)
class StepSchedule:
    """The steps through several intervals in one sequence: the interval of each, and its number there.

    Attributes:
        interval, number: [B, T]; any valid index behind the last step of a sequence.
        total: [B], steps of each sequence.
        until: [B, Q + 1], steps before each interval, and all.
    """

    interval: Int[Tensor, "batch steps"]
    number: Int[Tensor, "batch steps"]
    total: Int[Tensor, " batch"]
    until: Int[Tensor, "batch bounds"]

    @classmethod
    def of(cls, count: Int[Tensor, "batch intervals"]) -> StepSchedule:
        """From the number of steps in each interval."""
        until = torch.nn.functional.pad(count.cumsum(1), (1, 0))
        total = until[:, -1]
        steps = torch.arange(int(total.max()) if len(total) else 0, device=count.device).expand(len(total), -1)
        ends = until[:, 1:].contiguous()
        interval = torch.searchsorted(ends, steps.contiguous(), right=True).clamp(max=max(count.shape[1] - 1, 0))
        return cls(interval, steps - until.gather(1, interval), total, until)

    @classmethod
    def apart(cls, count: Int[Tensor, "batch intervals"]) -> StepSchedule:
        """The same where each interval has as many places as the longest, [B, Q steps] in all."""
        batch, intervals = count.shape
        most = int(count.max()) if count.numel() else 0
        place = torch.arange(intervals * most, device=count.device).expand(batch, -1)
        until = torch.arange(intervals + 1, device=count.device).expand(batch, -1) * most
        return cls(place // max(most, 1), place % max(most, 1), until[:, -1], until)


def tanh_network(width: int, units: int, depth: int, *, with_time: bool = False) -> nn.Sequential:
    """``width [+ 1] -> units -> ... -> width`` with ``depth`` hidden layers, initialised as in the code of ODE-RNN."""
    if units < 1 or depth < 0:
        raise ValueError(f"units must be positive and depth not negative, got {units} and {depth}: use 100 and 2")
    sizes = [width + with_time, *[units] * depth, width]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        linear = nn.Linear(before, after)
        nn.init.normal_(linear.weight, std=0.1)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])

"""The two Runge-Kutta sweeps for the paper's field, with a backward pass written by hand.

Both activations are a sigmoid: ``f(t, x) = amplitude * σ(gain ∘ n + shift) + offset``, with tanh(z) = 2 σ(2z) - 1.
The norm is ``n = z / √(|z|² + d eps)`` with ``z = A x + c t + b`` (A, c, b centred over channels and √d in the gain,
which makes this LayerNorm); without a norm the argument is z itself. Every evaluation of both sweeps is a slice of
rows in a few large buffers: what would be hundreds of small tensors for autograd is a handful, and the gradients of
A, b, c, gain and shift are one product or sum over all rows at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.native import pairs, sweep
from contiformer.native.derivatives import first_derivatives_only
from contiformer.nn import scratch
from contiformer.paths.trajectories import Pieces, SweepPlan

#: Observations are swept in shares of about this many numbers, so that a share's work stays in the cache.
SHARE = 2**16
MAX_SHARES = 16
#: Tapes of more elements than this are run again in the backward pass instead of kept.
KEEP_TAPE = 2**22


@dataclass(frozen=True)
class SigmoidField:
    """The field in the form above, ``z = x @ matrix + slope t + bias``. Shapes: matrix [S, d, d], the rest [S, 1, d].

    ``floor`` is ``√(d eps)``, or None where there is no norm; then gain and shift are None too.
    """

    matrix: Tensor
    slope: Tensor
    bias: Tensor
    gain: Tensor | None
    shift: Tensor | None
    floor: float | None
    amplitude: float
    offset: float

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """What is learned."""
        return self.matrix, self.slope, self.bias, self.gain, self.shift

    @property
    def constants(self) -> tuple[float | None, float, float]:
        """What is not."""
        return self.floor, self.amplitude, self.offset

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Derivatives at t [n, B, 1] and x [S, n, B, d], with plain operations."""
        z = torch.baddbmm(
            torch.addcmul(self.bias, self.slope, t.reshape(1, -1, 1)),
            x.reshape(x.shape[0], -1, x.shape[-1]),
            self.matrix,
        )
        if self.floor is not None:
            assert self.shift is not None
            assert self.gain is not None
            z = torch.addcmul(self.shift, z * (z.square().sum(-1, keepdim=True) + self.floor**2).rsqrt(), self.gain)
        return (self.amplitude * z.sigmoid() + self.offset).view(x.shape)

    def solve(
        self,
        initial: Float[Tensor, "states obs batch d"],
        times: Tensor,
        pieces: Pieces,
        basis: Tensor,
        causal: bool,
        heads: int,
        valid: Bool[Tensor, "obs batch"] | None,
    ) -> tuple[tuple[Tensor, ...], Tensor] | None:
        """Series and their squares in C, where that was compiled."""
        if not sweep.usable(initial):
            return None
        return sweep.solve(initial, times, pieces, basis, causal, heads, self.parameters, self.constants, valid)

    def along(
        self, states: Float[Tensor, "pairs d"], begin: Float[Tensor, " pairs"], end: Float[Tensor, " pairs"], steps: int
    ) -> Float[Tensor, "pairs d"]:
        """Each state after so many Runge-Kutta steps along the only field, in C, which must take these tensors."""
        assert len(self.matrix) == 1
        return pairs.solve(states, begin, end, steps, self.parameters, self.constants)

    def sweep(
        self, initial: Float[Tensor, "states obs batch d"], times: Tensor, pieces: Pieces, nodes: int, causal: bool
    ) -> Float[Tensor, "two grid states obs batch d"]:
        """Values and x-derivatives at the nodes, by the passes below."""
        share = -(-times.shape[0] // max(1, min(MAX_SHARES, initial.numel() // SHARE)))
        parts = [
            _FusedSweep.apply(
                some.contiguous(), *self.parameters, SweepPlan.of(when, pieces, nodes, causal), self.constants
            )
            for some, when in zip(initial.split(share, 1), times.split(share), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 3)


@dataclass
class _Tape:
    """Rows of every evaluation: times, inputs, normed arguments, their lengths, and values of the sigmoid."""

    time: Tensor
    x: Tensor
    n: Tensor
    y: Tensor
    length: Tensor | None

    def release(self) -> None:
        """Give the buffers back; the tape must not be read after this."""
        scratch.give(self.x, self.n, self.y)


@dataclass(frozen=True)
class _Step:
    """One Runge-Kutta step of both sweeps: its first row, rows per stage, and the step sizes [rows, 1]."""

    offset: int
    rows: int
    h: Tensor


def _layout(plan: SweepPlan, dtype: torch.dtype) -> tuple[list[_Step], Tensor]:
    """All steps and substeps, and the time of every row: four stages a step, then the nodes themselves."""
    obs, last = plan.times.shape[0], plan.grid.shape[0] - 1
    starts = plan.starts()
    ahead = (plan.grid[1:, None] - starts) / plan.substeps
    back = (plan.grid[:-1, None] - starts) / plan.substeps
    steps, clocks, offset = [], [], 0
    for number in range(last):
        front, rear, mirror = slice(0, plan.forward[number]), plan.backward[number], last - 1 - number
        start = torch.cat([starts[number, front], starts[mirror, rear]]).flatten()
        h = torch.cat([ahead[number, front], back[mirror, rear]]).flatten()
        for sub in range(plan.substeps):
            at = start + sub * h if sub else start
            middle = torch.add(at, h, alpha=0.5)
            clocks += [at, middle, middle, at + h]
            steps.append(_Step(offset, len(at), h.to(dtype)[:, None]))
            offset += 4 * len(at)
    clocks.append(plan.grid[:, None].expand(-1, obs, -1).flatten())
    return steps, torch.cat(clocks).to(dtype)[:, None]


@cache
def _scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


def _evaluate(tape: _Tape, rows: slice, field: SigmoidField) -> Tensor:
    """The sigmoid at ``tape.x[:, rows]``; ``tape.n`` has ``c t + b`` there before and the normed argument after."""
    z, y = tape.n[:, rows], tape.y[:, rows]
    torch.baddbmm(z, tape.x[:, rows], field.matrix, out=z)
    if tape.length is None:
        return torch.sigmoid(z, out=y)
    assert field.gain is not None
    assert field.shift is not None
    assert field.floor is not None
    floor = _scalar(field.floor, z.dtype, z.device)
    length = tape.length[:, rows]
    torch.linalg.vector_norm(z, dim=-1, keepdim=True, out=length)
    z.div_(length.hypot_(floor))
    return torch.addcmul(field.shift, z, field.gain, out=y).sigmoid_()


def _pull_back(tape: _Tape, rows: slice, g: Tensor, g_inner: Tensor, g_z: Tensor, field: SigmoidField) -> Tensor:
    """Gradient with respect to the evaluation's input, given ``g`` with respect to the sigmoid.

    Leaves the gradients with respect to the sigmoid's argument and to ``z`` in ``g_inner`` and ``g_z`` at ``rows``.
    """
    y, out = tape.y[:, rows], g_z[:, rows]
    inner = out if tape.length is None else g_inner[:, rows]
    torch.mul(g, y, out=inner)
    inner.addcmul_(inner, y, value=-1)
    if tape.length is not None:
        assert field.gain is not None
        n = tape.n[:, rows]
        torch.mul(inner, field.gain, out=out)
        out.addcmul_(n, (out * n).sum(-1, keepdim=True), value=-1).div_(tape.length[:, rows])
    return out @ field.matrix.mT


def _run(initial: Tensor, field: SigmoidField, plan: SweepPlan) -> tuple[Tensor, _Tape, list[_Step]]:
    """Both sweeps and the field at the nodes, with the tape of all evaluations."""
    states, obs, batch, width = initial.shape
    nodes = plan.grid.shape[0]
    steps, time = _layout(plan, initial.dtype)
    total = time.shape[0]
    length = None if field.floor is None else initial.new_empty(states, total, 1)
    x, n, y = (scratch.take(initial, states, total, width) for _ in range(3))
    tape = _Tape(time, x, n, y, length)
    torch.addcmul(field.bias, field.slope, time, out=tape.n)
    start = initial.reshape(states, -1, width)
    ahead = start.new_empty(nodes, *start.shape)
    back = torch.empty_like(ahead)
    ahead[0], back[-1] = start, start
    for number in range(nodes - 1):
        front, rear = _moving(plan, number, batch)
        first, last = ahead[number], back[nodes - 1 - number]
        state = torch.cat([first[:, front], last[:, rear]], dim=1)
        for step in steps[number * plan.substeps : (number + 1) * plan.substeps]:
            state = _advance(tape, step, state, field)
        ahead[number + 1], back[nodes - 2 - number] = first, last
        ahead[number + 1][:, front], back[nodes - 2 - number][:, rear] = state[:, : front.stop], state[:, front.stop :]
    shape = (nodes, states, obs, batch, width)
    data = initial.new_empty(2, *shape)
    torch.where(plan.reached(), ahead.view(shape), back.view(shape), out=data[0])
    rows = slice(total - nodes * obs * batch, total)
    tape.x[:, rows].view(states, nodes, obs, batch, width).copy_(data[0].transpose(0, 1))
    sigmoid = _evaluate(tape, rows, field).view(states, nodes, obs, batch, width).transpose(0, 1)
    stretch = plan.stretch.to(initial.dtype)[:, None]
    torch.addcmul(stretch * field.offset, sigmoid, stretch * field.amplitude, out=data[1])
    return data, tape, steps


class _FusedSweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        initial: Tensor,
        matrix: Tensor,
        slope: Tensor,
        bias: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        plan: SweepPlan,
        constants: tuple[float | None, float, float],
    ) -> Tensor:
        data, tape, steps = _run(initial, SigmoidField(matrix, slope, bias, gain, shift, *constants), plan)
        # a long tape is cheaper to run again than to keep
        ctx.run = (tape, steps) if any(ctx.needs_input_grad) and tape.x.numel() <= KEEP_TAPE else None
        if ctx.run is None:
            tape.release()
        ctx.plan, ctx.constants = plan, constants
        ctx.save_for_backward(initial, matrix, slope, bias, gain, shift)
        return data

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_data: Tensor) -> tuple[Tensor | None, ...]:
        initial, *parameters = ctx.saved_tensors
        plan, field = ctx.plan, SigmoidField(*parameters, *ctx.constants)
        tape, steps = ctx.run if ctx.run is not None else _run(initial, field, plan)[1:]
        ctx.run = None
        _, nodes, states, obs, batch, width = g_data.shape
        g_inner, g_z = (scratch.take(tape.x, *tape.x.shape) for _ in range(2))

        def pull(rows: slice, g: Tensor) -> Tensor:
            return _pull_back(tape, rows, g, g_inner, g_z, field)

        at_nodes = slice(tape.x.shape[1] - nodes * obs * batch, tape.x.shape[1])
        g_slopes = g_data[1].transpose(0, 1) * (plan.stretch.to(g_data.dtype)[:, None] * field.amplitude)
        g_at_nodes = pull(at_nodes, g_slopes.reshape(states, -1, width))
        g_nodes = g_data[0] + g_at_nodes.view(states, nodes, obs, batch, width).transpose(0, 1)
        g_ahead = torch.where(plan.reached(), g_nodes, 0.0)
        g_back = (g_nodes - g_ahead).reshape(nodes, states, -1, width)
        g_ahead = g_ahead.reshape(nodes, states, -1, width)
        ahead, back = g_ahead[-1], g_back[0]
        for number in range(nodes - 2, -1, -1):
            front, rear = _moving(plan, number, batch)
            g = torch.cat([ahead[:, front], back[:, rear]], dim=1)
            for step in reversed(steps[number * plan.substeps : (number + 1) * plan.substeps]):
                g = _retreat(step, g, pull, field.amplitude)
            ahead[:, front], back[:, rear] = g[:, : front.stop], g[:, front.stop :]
            ahead, back = ahead + g_ahead[number], back + g_back[nodes - 1 - number]
        g_initial = (ahead + back).view(states, obs, batch, width)
        g_matrix = tape.x.mT @ g_z
        edges = torch.cat([tape.time, torch.ones_like(tape.time)], dim=1).T.expand(states, -1, -1) @ g_z
        g_gain = g_shift = None
        if field.floor is not None:
            g_gain, g_shift = torch.mul(g_inner, tape.n, out=g_z).sum(1, keepdim=True), g_inner.sum(1, keepdim=True)
        scratch.give(g_inner, g_z)
        tape.release()
        return g_initial, g_matrix, edges[:, :1], edges[:, 1:], g_gain, g_shift, None, None


def _moving(plan: SweepPlan, number: int, batch: int) -> tuple[slice, slice]:
    """Rows (observation, sequence) that the step moves, forward and backward."""
    rear = plan.backward[number]
    return slice(0, plan.forward[number] * batch), slice(rear.start * batch, rear.stop * batch)


def _stage_rows(step: _Step, stage: int) -> slice:
    return slice(step.offset + stage * step.rows, step.offset + (stage + 1) * step.rows)


def _advance(tape: _Tape, step: _Step, x: Tensor, field: SigmoidField) -> Tensor:
    """One Runge-Kutta step; with ``f = amplitude σ + offset`` the offset's part of every stage is known beforehand."""
    h, half = step.h, step.h / 2
    whole, middle = (
        (torch.add(x, h, alpha=field.offset), torch.add(x, half, alpha=field.offset)) if field.offset else (x, x)
    )
    h, half = h * field.amplitude, half * field.amplitude
    k: list[Tensor] = []
    for stage, (base, reach) in enumerate(((x, None), (middle, half), (middle, half), (whole, h))):
        rows = _stage_rows(step, stage)
        if reach is None:
            tape.x[:, rows] = base
        else:
            torch.addcmul(base, reach, k[-1], out=tape.x[:, rows])
        k.append(_evaluate(tape, rows, field))
    return torch.addcmul(torch.addcmul(whole, h / 6, k[0] + k[3]), h / 3, k[1] + k[2])


def _retreat(step: _Step, g: Tensor, pull: Callable[[slice, Tensor], Tensor], amplitude: float) -> Tensor:
    """The adjoint of one Runge-Kutta step."""
    h = step.h * amplitude
    half = h / 2
    outer, inner = g * (h / 6), g * (h / 3)
    total, passed = g, outer
    for stage, reach, direct in ((3, h, inner), (2, half, inner), (1, half, outer)):
        back = pull(_stage_rows(step, stage), passed)
        total = total + back
        passed = torch.addcmul(direct, reach, back)
    return total + pull(_stage_rows(step, 0), passed)

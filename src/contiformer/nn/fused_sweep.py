"""The two Runge-Kutta sweeps for the paper's field, with a backward pass written by hand.

The field is ``f(t, x) = act(gain ∘ n + shift)``, ``n = z / √(mean z² + eps)``, ``z = A x + c t + b`` (A, c, b centred over
channels, which makes this LayerNorm; without a norm ``n = z``). Every evaluation of both sweeps is a slice of rows in a few
large buffers: what would be hundreds of small tensors for autograd is a handful, and the gradients of
A, b, c, gain and shift are one product or sum over all rows at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contiformer.paths.trajectories import SweepPlan


@dataclass(frozen=True)
class FieldKind:
    """Activation, and the eps of the norm or None where there is no norm."""

    activation: str
    eps: float | None


@dataclass
class _Tape:
    """Rows of every evaluation: times, inputs, normalised arguments, their scales, and outputs."""

    time: Tensor
    x: Tensor
    n: Tensor
    y: Tensor
    scale: Tensor | None


@dataclass(frozen=True)
class _Step:
    """One Runge-Kutta step of both sweeps: its first row, rows per stage, how many of them go forward, the step sizes."""

    offset: int
    rows: int
    forward_rows: int
    h: Tensor


def _layout(plan: SweepPlan, dtype: torch.dtype) -> tuple[list[_Step], Tensor, int]:
    """All steps and substeps, and the time of every row: four stages a step, then the nodes themselves."""
    obs, batch = plan.times.shape
    steps, clocks, offset = [], [], 0
    for number in range(plan.grid.shape[0] - 1):
        (ahead, ahead_length), (back, back_length) = plan.start_and_step(number)
        start = torch.cat([ahead, back]).flatten()
        h = torch.cat([ahead_length, back_length]).flatten() / plan.substeps
        for sub in range(plan.substeps):
            at = start + sub * h
            middle = at + h / 2
            clocks += [at, middle, middle, at + h]
            steps.append(_Step(offset, len(at), ahead.numel(), h.to(dtype)[:, None]))
            offset += 4 * len(at)
    clocks.append(plan.grid[:, None].expand(-1, obs, -1).flatten())
    return steps, torch.cat(clocks).to(dtype)[:, None], offset


def _evaluate(tape: _Tape, rows: slice, matrix: Tensor, gain: Tensor | None, shift: Tensor | None, kind: FieldKind) -> Tensor:
    """The field at ``tape.x[:, rows]``; ``tape.n`` holds ``c t + b`` there before and the normalised argument after."""
    z = tape.n[:, rows]
    torch.baddbmm(z, tape.x[:, rows], matrix, out=z)
    y = tape.y[:, rows]
    if tape.scale is not None:
        assert gain is not None
        assert shift is not None
        assert kind.eps is not None
        scale = tape.scale[:, rows]
        torch.mul(z, z, out=y)
        torch.mean(y, dim=-1, keepdim=True, out=scale)
        scale.add_(kind.eps).rsqrt_()
        z.mul_(scale)
        torch.addcmul(shift, z, gain, out=y)
    else:
        y.copy_(z)
    if kind.activation == "sigmoid":
        return y.sigmoid_()
    # tanh(z) = 2 σ(2z) - 1: torch's sigmoid is three times as fast as its tanh on a CPU
    return y.mul_(2).sigmoid_().mul_(2).sub_(1) if y.dtype == torch.float32 and y.device.type == "cpu" else y.tanh_()


def _pull_back(
    tape: _Tape, rows: slice, g: Tensor, g_inner: Tensor, g_z: Tensor, transposed: Tensor, gain: Tensor | None, kind: FieldKind
) -> Tensor:
    """Gradient with respect to the evaluation's input, given ``g`` with respect to its output.

    Leaves the gradients with respect to the activation's argument and to ``z`` in ``g_inner`` and ``g_z`` at ``rows``.
    """
    y, inner, out = tape.y[:, rows], g_inner[:, rows], g_z[:, rows]
    torch.mul(g, y, out=inner)
    if kind.activation == "sigmoid":
        inner.addcmul_(inner, y, value=-1)
    else:
        torch.addcmul(g, inner, y, value=-1, out=inner)
    if tape.scale is None:
        out.copy_(inner)
    else:
        assert gain is not None
        n = tape.n[:, rows]
        torch.mul(inner, gain, out=out)
        along = (out * n).mean(-1, keepdim=True)
        out.addcmul_(n, along, value=-1).mul_(tape.scale[:, rows])
    return out @ transposed


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
        kind: FieldKind,
    ) -> tuple[Tensor, Tensor]:
        states, obs, batch, width = initial.shape
        nodes = plan.grid.shape[0]
        steps, time, offset = _layout(plan, initial.dtype)
        matrix = matrix.contiguous()
        total = time.shape[0]
        buffer = initial.new_empty(3, states, total, width)
        scale = None if kind.eps is None else initial.new_empty(states, total, 1)
        tape = _Tape(time, buffer[0], buffer[1], buffer[2], scale)
        torch.addcmul(bias, slope, time, out=tape.n)
        start = initial.reshape(states, -1, width)
        ahead = start.new_empty(nodes, *start.shape)
        back = torch.empty_like(ahead)
        ahead[0], back[-1] = start, start
        for number in range(nodes - 1):
            front, rear = _moving(plan, number, batch)
            first, last = ahead[number], back[nodes - 1 - number]
            subs = steps[number * plan.substeps : (number + 1) * plan.substeps]
            x = torch.cat([first[:, front], last[:, rear]], dim=1)
            for step in subs:
                x = _advance(tape, step, x, matrix, gain, shift, kind)
            ahead[number + 1], back[nodes - 2 - number] = first, last
            ahead[number + 1][:, front], back[nodes - 2 - number][:, rear] = x[:, : front.stop], x[:, front.stop :]
        reached = plan.reached()
        shape = (nodes, states, obs, batch, width)
        values = torch.where(reached, ahead.view(shape), back.view(shape))
        rows = slice(offset, total)
        tape.x[:, rows] = values.transpose(0, 1).reshape(states, -1, width)
        slopes = _evaluate(tape, rows, matrix, gain, shift, kind)
        ctx.tape, ctx.plan, ctx.kind, ctx.steps, ctx.offset, ctx.reached = tape, plan, kind, steps, offset, reached
        ctx.shape = shape
        ctx.save_for_backward(matrix, slope, bias, gain, shift)
        return values, slopes.view(states, nodes, obs, batch, width).transpose(0, 1).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_values: Tensor, g_slopes: Tensor) -> tuple[Tensor | None, ...]:
        matrix, _, _, gain, _ = ctx.saved_tensors
        tape, plan, kind, shape = ctx.tape, ctx.plan, ctx.kind, ctx.shape
        nodes, states, obs, batch, width = shape
        g_inner, g_z = torch.empty_like(tape.x), torch.empty_like(tape.x)
        transposed = matrix.mT.contiguous()

        def pull(rows: slice, g: Tensor) -> Tensor:
            return _pull_back(tape, rows, g, g_inner, g_z, transposed, gain, kind)

        at_nodes = pull(slice(ctx.offset, tape.x.shape[1]), g_slopes.transpose(0, 1).reshape(states, -1, width))
        g_nodes = g_values + at_nodes.view(states, nodes, obs, batch, width).transpose(0, 1)
        g_ahead = torch.where(ctx.reached, g_nodes, 0.0)
        g_back = (g_nodes - g_ahead).reshape(nodes, states, -1, width)
        g_ahead = g_ahead.reshape(nodes, states, -1, width)
        ahead, back = g_ahead[-1], g_back[0]
        for number in range(nodes - 2, -1, -1):
            front, rear = _moving(plan, number, batch)
            g = torch.cat([ahead[:, front], back[:, rear]], dim=1)
            for step in reversed(ctx.steps[number * plan.substeps : (number + 1) * plan.substeps]):
                g = _retreat(step, g, pull)
            ahead[:, front], back[:, rear] = g[:, : front.stop], g[:, front.stop :]
            ahead, back = ahead + g_ahead[number], back + g_back[nodes - 1 - number]
        initial = (ahead + back).view(states, obs, batch, width)
        g_matrix = tape.x.mT @ g_z
        edges = torch.cat([tape.time, torch.ones_like(tape.time)], dim=1).T.expand(states, -1, -1) @ g_z
        g_gain = g_shift = None
        if gain is not None:
            g_gain, g_shift = torch.mul(g_inner, tape.n, out=g_z).sum(1, keepdim=True), g_inner.sum(1, keepdim=True)
        return initial, g_matrix, edges[:, :1], edges[:, 1:], g_gain, g_shift, None, None


def _moving(plan: SweepPlan, number: int, batch: int) -> tuple[slice, slice]:
    """Rows (observation, sequence) that the step moves, forward and backward."""
    rear = plan.backward[number]
    return slice(0, plan.forward[number] * batch), slice(rear.start * batch, rear.stop * batch)


def _advance(
    tape: _Tape, step: _Step, x: Tensor, matrix: Tensor, gain: Tensor | None, shift: Tensor | None, kind: FieldKind
) -> Tensor:
    h, half = step.h, step.h / 2
    k: list[Tensor] = []
    for stage, reach in enumerate((None, half, half, h)):
        rows = slice(step.offset + stage * step.rows, step.offset + (stage + 1) * step.rows)
        if reach is None:
            tape.x[:, rows] = x
        else:
            torch.addcmul(x, reach, k[-1], out=tape.x[:, rows])
        k.append(_evaluate(tape, rows, matrix, gain, shift, kind))
    return torch.addcmul(torch.addcmul(x, h / 6, k[0] + k[3]), h / 3, k[1] + k[2])


def _retreat(step: _Step, g: Tensor, pull: Any) -> Tensor:
    """The adjoint of one Runge-Kutta step."""
    h, half = step.h, step.h / 2
    outer, inner = g * (h / 6), g * (h / 3)
    total = g
    direct: tuple[Tensor, ...] = (outer, inner, inner, outer)
    passed = outer
    for stage, reach in zip((3, 2, 1, 0), (h, half, half, None), strict=True):
        rows = slice(step.offset + stage * step.rows, step.offset + (stage + 1) * step.rows)
        back = pull(rows, passed)
        total = total + back
        if reach is not None:
            passed = torch.addcmul(direct[stage - 1], reach, back)
    return total


def fused_sweep(
    initial: Tensor,
    matrix: Tensor,
    slope: Tensor,
    bias: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    plan: SweepPlan,
    kind: FieldKind,
) -> tuple[Tensor, Tensor]:
    """Values and derivatives [G, S, N, B, d] of all trajectories at the nodes of the plan.

    Shapes: initial [S, N, B, d], matrix [S, d, d] with ``z = x @ matrix``, slope, bias, gain and shift [S, 1, d].
    """
    values, slopes = _FusedSweep.apply(initial, matrix, slope, bias, gain, shift, plan, kind)
    return values, slopes

"""One solution of a differential equation, read at many times before and after its start."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.backbones.ode_rnn import Field, Flow


def states_along(
    flow: Flow, field: Field, start: Float[Tensor, "batch d"], since: Float[Tensor, "batch query"]
) -> Float[Tensor, "batch query d"]:
    """The solution of ``dz/dt = f(z)`` at times ``since`` the start, which may be negative.

    It is solved once in steps of ``flow.step``, at most ``flow.max_steps`` of them each way, and from the last of these
    before it each query goes its own way. So no query depends on another, and many cost little more than one.

    Example:
        >>> since = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64)
        >>> states = states_along(Flow(step=0.1), lambda z: z, torch.ones(1, 1, dtype=torch.float64), since)
        >>> [round(z, 4) for z in states.flatten().tolist()]
        [1.0, 2.7183, 0.3679]
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

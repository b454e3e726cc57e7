"""One state for a whole series."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Kind = Literal["learned", "mean", "last"]


class Pooling(nn.Module):
    """States ``z(t_i)`` at the points of a series in, one state out.

    - ``learned``: queries ``u_k`` that are learned weigh the points by ``softmax_i(u_k · z(t_i))``; states know their
      time, so the weights can depend on it. They begin as the mean. Beside them stands the largest value over the
      points, number by number.
    - ``mean``: over the points.
    - ``last``: the state at the last point.

    Shapes: states [B, L, d], mask [B, L] -> [B, size]. A series without points gets zeros.
    """

    def __init__(self, d_model: int, kind: Kind = "learned", queries: int = 4) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        self.kind = kind
        self.size = d_model * (queries + 1 if kind == "learned" else 1)
        if kind == "learned":
            self.queries = nn.Parameter(torch.zeros(queries, d_model))

    def forward(
        self, states: Float[Tensor, "batch points d"], mask: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch size"]:
        """The pooled states."""
        if self.kind == "last" and mask.shape[1]:
            last = (torch.arange(mask.shape[1], device=mask.device) * mask).amax(1)
            picked = states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)
            return picked * mask.any(1, keepdim=True)
        means = self.weights(states, mask).to(states.dtype).matmul(states).flatten(1)
        if self.kind != "learned":
            return means
        floor = torch.finfo(states.dtype).min
        largest = states.masked_fill(~mask.unsqueeze(-1), floor).amax(1) if mask.shape[1] else states.sum(1)
        return torch.cat([means, torch.where(mask.any(1, keepdim=True), largest, 0.0)], dim=-1)

    def weights(
        self, states: Float[Tensor, "batch points d"], mask: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch queries points"]:
        """How much each point counts; the sum over a series is 1."""
        if self.kind == "learned":
            scores = self.queries @ states.mT
        elif self.kind == "mean":
            scores = states.new_zeros(states.shape[0], 1, states.shape[1])
        else:
            # the last point is the one with no other behind it
            behind = mask.flip(1).cumsum(1).flip(1)
            return (mask & (behind == 1)).to(states.dtype).unsqueeze(1)
        allowed = mask.unsqueeze(1)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) * allowed

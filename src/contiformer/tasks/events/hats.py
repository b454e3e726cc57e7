"""Piecewise linear functions of a positive number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Hats(nn.Module):
    """Hat functions on knots: ``Σ_m φ_m(x) y_m`` is the line through ``(s_m, y_m)``, constant outside of the knots."""

    knots: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float64), persistent=False)

    def __len__(self) -> int:
        """The number of knots."""
        return len(self.knots)

    def places(self, dtype: torch.dtype) -> Float[Tensor, " knots"]:
        """The knots."""
        return self.knots.to(dtype)

    def locate(self, x: Float[Tensor, "*shape"]) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        """The knot before x, and how far x is from there to the next as a share."""
        knots = self.places(x.dtype)
        low = (torch.searchsorted(knots, x.detach().contiguous(), right=True) - 1).clamp(0, len(knots) - 2)
        return low, ((x - knots[low]) / (knots[low + 1] - knots[low])).clamp(0, 1)

    def of_table(self, table: Float[Tensor, "knots d"], x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape d"]:
        """With vectors ``y_m`` that are the same everywhere."""
        low, share = self.locate(x)
        return torch.lerp(
            nn.functional.embedding(low, table), nn.functional.embedding(low + 1, table), share.unsqueeze(-1)
        )

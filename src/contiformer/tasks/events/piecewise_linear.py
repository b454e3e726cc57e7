"""Piecewise linear functions of a wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contiformer.data.scaling import EventScaling

#: Knots in the elapsed time, at most.
KNOTS = 24
#: A knot is at least this factor after the one before it: the hazard has no finer structure.
_APART = 1.25
#: The first knot after 0 is at least so many mean waits after the event.
_FIRST = 1e-3


class PiecewiseLinear(nn.Module):
    """``Σ_m φ_m(x) y_m`` with hat functions ``φ_m``: the line through ``(s_m, y_m)``, constant outside of the knots."""

    knots: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float64), persistent=False)

    def locate(self, x: Float[Tensor, "*shape"]) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        """The knot before x, and how far x is from there to the next as a share."""
        knots = self.knots.to(x.dtype)
        low = (torch.searchsorted(knots, x.detach().contiguous(), right=True) - 1).clamp(0, len(knots) - 2)
        return low, ((x - knots[low]) / (knots[low + 1] - knots[low])).clamp(0, 1)

    def of_table(self, table: Float[Tensor, "knots d"], x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape d"]:
        """Interpolate one table of vectors ``y_m``."""
        low, share = self.locate(x)
        before, after = nn.functional.embedding(low, table), nn.functional.embedding(low + 1, table)
        return torch.lerp(before, after, share.unsqueeze(-1))


def wait_knots(scaling: EventScaling) -> list[float]:
    """Knots at quantiles of the waits that are not too near to each other; the first is 0."""
    quantiles = np.quantile(scaling.waits, np.linspace(0, 1, KNOTS))
    places = [0.0]
    for wait in quantiles:
        if wait >= max(_FIRST, _APART * places[-1]):
            places.append(float(wait))
    if len(places) < 2:
        places.append(max(_FIRST, 1.0))
    return places

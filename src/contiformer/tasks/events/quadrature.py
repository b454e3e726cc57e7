"""Integrals of intensities between events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.memory import Memory

RuleName = Literal["closed", "gauss", "monte carlo"]


@dataclass(frozen=True)
class IntegralRule:
    """How ``Λ_i = ∫_0^{wait} λ(t_i + s) ds`` is computed.

    Attributes:
        name: "closed", the default: closed form where the model has one, "gauss" otherwise; "gauss": Gauss–Legendre
            with ``nodes`` points in each interval between events; "monte carlo": the mean over ``nodes`` points drawn
            evenly from the interval, as in the paper.
        nodes: points in each interval.
    """

    name: RuleName = "closed"
    nodes: int = 8

    def __post_init__(self) -> None:
        """Refuse what is no rule."""
        if self.name not in ("closed", "gauss", "monte carlo"):
            raise ValueError(f"the integral must be 'closed', 'gauss' or 'monte carlo', got {self.name!r}")
        if not 1 <= self.nodes <= 1000:
            raise ValueError(f"nodes must be from 1 to 1000, got {self.nodes}")


@cache
def gauss_legendre(nodes: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Points and weights on [0, 1], and the matrix of the integrals from 0 to each point.

    Row i of the matrix integrates the polynomial through the values at all points up to point i.
    """
    x, w = np.polynomial.legendre.leggauss(nodes)
    powers = np.polynomial.legendre.legvander(x, nodes - 1)
    upto = np.stack(
        [np.polynomial.legendre.legval(x, np.polynomial.legendre.legint(row, lbnd=-1)) for row in np.eye(nodes)], 1
    )
    return (x + 1) / 2, w / 2, (upto @ np.linalg.inv(powers)) / 2


def compensator(
    model: IntensityModel, memory: Memory, wait: Float[Tensor, "batch events"], rule: IntegralRule
) -> Float[Tensor, "batch events"]:
    """``∫_0^{wait} λ(t_i + s) ds`` after each event."""
    if rule.name == "closed":
        closed = model.integral(memory, wait.unsqueeze(-1))
        if closed is not None:
            return closed.squeeze(-1)
    if rule.name == "monte carlo":
        share = torch.rand(*wait.shape, rule.nodes, dtype=wait.dtype, device=wait.device)
        return wait * model.total(memory, wait.unsqueeze(-1) * share).mean(-1)
    x, w, _ = (torch.as_tensor(part, dtype=wait.dtype, device=wait.device) for part in gauss_legendre(rule.nodes))
    return wait * (model.total(memory, wait.unsqueeze(-1) * x) @ w)

"""What a spiral can be reconstructed from without training, and at best."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.data.synthetic import Spirals
from contiformer.data.synthetic.spirals import LAST_ANGLE, archimedean, hyperbolic
from contiformer.paths.interpolation import Interpolation, interpolate


def through_observations(kind: Interpolation, spirals: Spirals) -> Float[Tensor, "n times 2"]:
    """The path through the noisy observations; outside them the end values are held."""
    return interpolate(kind, spirals.observed_times, spirals.observed_values)(spirals.times)


def mean_curve(train: Spirals, spirals: Spirals) -> Float[Tensor, "n times 2"]:
    """The mean of the training curves that turn the same way: right about all that the spirals have in common."""
    means = torch.stack([train.clean[train.clockwise == way].mean(0) for way in (False, True)])
    return means[spirals.clockwise.long()]


def fitted_formula(spirals: Spirals, alpha: float, noise: float, end: float) -> Float[Tensor, "n times 2"]:
    """Nobody can do better: the formula, the direction and the distribution of ``a`` and ``b`` are known.

    The radius along the known angle is ``r = a + b g(t)``, observed with noise, so the posterior mean of
    ``(a, b)`` is a ridge regression towards ``(0, 0.3)``.
    """
    zero, one = torch.zeros(()), torch.ones(())
    clockwise = spirals.clockwise[:, None, None]

    def curve(times: Tensor, a: Tensor, b: Tensor) -> Float[Tensor, "n times 2"]:
        angle = LAST_ANGLE * times
        return torch.where(clockwise, hyperbolic(angle, a, b, end), archimedean(angle, a, b))

    direction = curve(spirals.observed_times, one, zero)
    growth = (curve(spirals.observed_times, zero, one) * direction).sum(-1)
    radius = (spirals.observed_values * direction).sum(-1)
    design = torch.stack([torch.ones_like(growth), growth], dim=-1)
    ridge = (noise / alpha) ** 2 * torch.eye(2)
    deviation = torch.linalg.solve(design.mT @ design + ridge, design.mT @ (radius - 0.3 * growth).unsqueeze(-1))
    a, b = deviation.squeeze(-1).unbind(-1)
    return curve(spirals.times, a.unsqueeze(1), 0.3 + b.unsqueeze(1))

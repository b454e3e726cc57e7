"""The noisy, irregularly observed spirals of the paper's first experiment.

Stated in the paper: the two curves (:func:`archimedean`, :func:`hyperbolic`), one of them at random for each spiral;
``a ~ N(0, α)``, ``b ~ N(0.3, α)`` with α = 0.02 (also 0.2 and 2); noise ``N(0, β)`` with β = 0.1; 150 equally spaced
times; 30 of the first 75 observed (the main text says 50), so that the first half is interpolated and the second
extrapolated.

Not stated, and chosen here as the authors' code has it: the curves run from s = 0 to 6π, three turns; the second one,
which is singular at t = e, has e = 6π + 1, so it stops one radian short; α and β are standard deviations. The code
differs from the text where this module follows the text: it moves the two curves apart by 10, runs the second one
backwards, scales both to [0, 1], and its default noise is 0.05.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: The angle at the last time: three turns, from the angle 0 at the first.
LAST_ANGLE = 6 * math.pi
#: The paper's ``e``.
END_ANGLE = LAST_ANGLE + 1.0

Part = Literal["first half", "whole"]


def archimedean(
    angle: Float[Tensor, "*shape"], a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape 2"]:
    """The counter-clockwise spiral ``r = a + b t``: ``(r cos t, r sin t)`` at the angles ``t``."""
    return _polar(a + b * angle, angle)


def hyperbolic(
    angle: Float[Tensor, "*shape"], a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"], end: float = END_ANGLE
) -> Float[Tensor, "*shape 2"]:
    """The clockwise spiral ``r = a + 50 b / (e - t)``: ``(r cos(e - t), r sin(e - t))``, for angles ``t < e``."""
    remaining = end - angle
    return _polar(a + 50 * b / remaining, remaining)


def _polar(radius: Tensor, angle: Tensor) -> Float[Tensor, "*shape 2"]:
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)


@dataclass(frozen=True)
class Spirals:
    """n spirals: the truth at all T times, and noisy observations at P of them.

    Attributes:
        times: [n, T], equally spaced from 0 to 1 (which is 6π in the angle of the formulas).
        clean: [n, T, 2], the true curves there.
        observed_times: [n, P], increasing; each spiral has its own.
        observed_values: [n, P, 2], truth plus noise.
        clockwise: [n], True for the second type of spiral.
        a, b: [n], the parameters of the curves.
    """

    times: Float[Tensor, "n times"]
    clean: Float[Tensor, "n times 2"]
    observed_times: Float[Tensor, "n points"]
    observed_values: Float[Tensor, "n points 2"]
    clockwise: Bool[Tensor, "n"]
    a: Float[Tensor, "n"]
    b: Float[Tensor, "n"]

    def __len__(self) -> int:
        """The number of spirals."""
        return len(self.times)

    def __getitem__(self, index: slice | Int[Tensor, "m"] | Bool[Tensor, "n"]) -> Spirals:
        """The spirals at the given positions."""
        return Spirals(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


def generate_spirals(
    n: int,
    *,
    points: int = 30,
    observe: Part = "first half",
    alpha: float = 0.02,
    noise: float = 0.1,
    n_times: int = 150,
    end: float = END_ANGLE,
    seed: int = 0,
) -> Spirals:
    """Draw ``n`` spirals of random type and parameters, and observe each at ``points`` random times with noise.

    The same seed gives the same curves whatever the noise and the number of points; fewer points are a subset of more.

    Args:
        n: number of spirals.
        points: observations of each spiral, at distinct times out of those in ``observe``.
        observe: "first half" (the second is then extrapolation) or "whole".
        alpha: standard deviation of ``a`` around 0 and of ``b`` around 0.3.
        noise: standard deviation β of the noise in each coordinate of the observations.
        n_times: equally spaced times at which the truth is given.
        end: the angle ``e`` of the second type, beyond 6π; the curve ends at radius ``a + 50 b / (e - 6π)``.
        seed: of everything that is random here.

    Example:
        >>> spirals = generate_spirals(4, points=30)
        >>> spirals.clean.shape, spirals.observed_values.shape
        (torch.Size([4, 150, 2]), torch.Size([4, 30, 2]))
    """
    candidates = n_times // 2 if observe == "first half" else n_times
    _check(n, points, candidates, alpha, noise, end)
    generator = torch.Generator().manual_seed(seed)
    a = alpha * torch.randn(n, generator=generator)
    b = 0.3 + alpha * torch.randn(n, generator=generator)
    clockwise = torch.rand(n, generator=generator) < 0.5
    shuffled = torch.rand(n, candidates, generator=generator).argsort(dim=1)

    times = torch.linspace(0, 1, n_times).expand(n, -1)
    angle = LAST_ANGLE * times
    a_, b_ = a.unsqueeze(1), b.unsqueeze(1)
    clean = torch.where(clockwise[:, None, None], hyperbolic(angle, a_, b_, end), archimedean(angle, a_, b_))

    # noise for every candidate: the draws do not depend on which of them are observed
    noisy = clean[:, :candidates] + noise * torch.randn(n, candidates, 2, generator=generator)
    index = shuffled[:, :points].sort(dim=1).values
    values = noisy.gather(1, index.unsqueeze(-1).expand(-1, -1, 2))
    return Spirals(times, clean, times.gather(1, index), values, clockwise, a, b)


def _check(n: int, points: int, candidates: int, alpha: float, noise: float, end: float) -> None:
    if n < 1:
        raise ValueError(f"n must be positive, got {n}")
    if not 1 <= points <= candidates:
        raise ValueError(f"points must be from 1 to {candidates}, the number of times to choose from, got {points}")
    if not (alpha >= 0 and noise >= 0):
        raise ValueError(f"alpha and noise are standard deviations and cannot be negative, got {alpha} and {noise}")
    if not end > LAST_ANGLE:
        raise ValueError(
            f"end must be beyond the last angle 6π = {LAST_ANGLE:.4f}, where the curve is singular, got {end}"
        )

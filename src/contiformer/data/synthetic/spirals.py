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
        end: [n], the angle ``e`` at which the second type is singular.
    """

    times: Float[Tensor, "n times"]
    clean: Float[Tensor, "n times 2"]
    observed_times: Float[Tensor, "n points"]
    observed_values: Float[Tensor, "n points 2"]
    clockwise: Bool[Tensor, "n"]
    a: Float[Tensor, "n"]
    b: Float[Tensor, "n"]
    end: Float[Tensor, "n"]

    def __len__(self) -> int:
        """The number of spirals."""
        return len(self.times)

    def __getitem__(self, index: slice | Int[Tensor, "m"] | Bool[Tensor, "n"]) -> Spirals:
        """The spirals at the given positions."""
        return Spirals(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

"""The noisy, irregularly observed spirals of the paper's first experiment.

Stated in the paper: the two curves (:func:`archimedean`, :func:`hyperbolic`), one of them at random for each spiral;
``a ~ N(0, α)``, ``b ~ N(0.3, α)`` with α = 0.02 (also 0.2 and 2); noise ``N(0, β)`` with β = 0.1; 150 equally spaced
times; 30 of the first 75 observed (the main text says 50), so that the first half is interpolated and the second
extrapolated.

Not stated, and chosen here as the authors' code has it: the curves run from s = 0 to 6π, three turns; the second one,
which is singular at t = e, has e = 6π + 1; α and β are standard deviations. The code differs from the text: it moves
the two curves apart by 10, runs the second one backwards, scales both to [0, 1] after the noise of 0.05, and observes
50 of the first 75 times, the same ones in all spirals. :data:`PRESETS` has both sets of choices.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

#: The angle at the last time: three turns, from the angle 0 at the first.
LAST_ANGLE = 6 * math.pi
#: The paper's ``e``.
END_ANGLE = LAST_ANGLE + 1.0

Preset = Literal["paper text", "authors' code"]
#: Arguments of :func:`spiral_set` by where they come from.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper text": {"points": 30, "noise": 0.1},
    "authors' code": {"points": 50, "noise": 0.05, "apart": 10.0, "backwards": True}
    | {"common_times": True, "unit_box": True},
}


def archimedean(
    angle: Float[Tensor, "*shape"], a: Float[Tensor, "*#shape"], b: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*shape 2"]:
    """The counter-clockwise spiral ``r = a + b t``: ``(r cos t, r sin t)`` at the angles ``t``."""
    return _polar(a + b * angle, angle)


def hyperbolic(
    angle: Float[Tensor, "*shape"], a: Float[Tensor, "*#shape"], b: Float[Tensor, "*#shape"], end: float = END_ANGLE
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

    Example:
        >>> from contiformer.data.synthetic import generate_spirals
        >>> spirals = generate_spirals(4, seed=0)
        >>> spirals.clean.shape[0], spirals.observed_values.shape == (4, spirals.observed_times.shape[1], 2)
        (4, True)
    """

    times: Float[Tensor, "n times"]
    clean: Float[Tensor, "n times 2"]
    observed_times: Float[Tensor, "n points"]
    observed_values: Float[Tensor, "n points 2"]
    clockwise: Bool[Tensor, " n"]
    a: Float[Tensor, " n"]
    b: Float[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, index: slice | list[int] | Int[Tensor, " m"] | Bool[Tensor, " n"]) -> Spirals:
        return Spirals(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def in_unit_box(self) -> Spirals:
        """Both coordinates scaled so that the true curves of all spirals together reach from 0 to 1."""
        low, high = self.clean.amin((0, 1)), self.clean.amax((0, 1))
        scaled = {name: (getattr(self, name) - low) / (high - low) for name in ("clean", "observed_values")}
        return replace(self, **scaled)


def generate_spirals(
    n: int,
    *,
    points: int = 30,
    alpha: float = 0.02,
    noise: float = 0.1,
    n_times: int = 150,
    end: float = END_ANGLE,
    apart: float = 0.0,
    backwards: bool = False,
    common_times: bool = False,
    seed: int = 0,
) -> Spirals:
    """Draw ``n`` spirals of random type and parameters, and observe each at ``points`` random times with noise.

    The same seed gives the same curves whatever the noise and the number of points; fewer points are a subset of more.

    Args:
        points: observations of each spiral, at distinct times of the first half; the second is extrapolation.
        alpha: standard deviation of ``a`` around 0 and of ``b`` around 0.3.
        noise: standard deviation β of the noise in each coordinate of the observations.
        n_times: equally spaced times at which the truth is given.
        end: the angle ``e`` of the second type, beyond 6π; the curve ends at radius ``a + 50 b / (e - 6π)``.
        apart: distance of the centres of both types, along the first coordinate, the first type to the right.
        backwards: the second type runs from its last angle to its first: inwards, and counter-clockwise.
        common_times: all spirals are observed at the times of the first.
    """
    candidates = n_times // 2
    if n < 1:
        raise DataError(f"n must be positive, got {n}")
    if not 1 <= points <= candidates:
        raise DataError(f"points must be from 1 to {candidates}, the number of times to choose from, got {points}")
    if not (alpha >= 0 and noise >= 0):
        raise DataError(f"alpha and noise are standard deviations and cannot be negative, got {alpha} and {noise}")
    if not end > LAST_ANGLE:
        singular = f"the last angle 6π = {LAST_ANGLE:.4f}, where the curve is singular"
        raise DataError(f"end must be beyond {singular}, got {end}")
    generator = torch.Generator().manual_seed(seed)
    a = alpha * torch.randn(n, generator=generator)
    b = 0.3 + alpha * torch.randn(n, generator=generator)
    clockwise = torch.rand(n, generator=generator) < 0.5
    shuffled = torch.rand(n, candidates, generator=generator).argsort(dim=1)

    times = torch.linspace(0, 1, n_times).expand(n, -1)
    angle = LAST_ANGLE * times
    a_, b_ = a.unsqueeze(1), b.unsqueeze(1)
    second = hyperbolic(angle, a_, b_, end)
    second = second.flip(1) if backwards else second
    clean = torch.where(clockwise[:, None, None], second, archimedean(angle, a_, b_))
    if apart:
        clean[..., 0] += torch.where(clockwise, -apart / 2, apart / 2).unsqueeze(1)
    if common_times:
        shuffled = shuffled[:1].expand(n, -1)

    # noise for every candidate: the draws do not depend on which of them are observed
    noisy = clean[:, :candidates] + noise * torch.randn(n, candidates, 2, generator=generator)
    index = shuffled[:, :points].sort(dim=1).values
    values = noisy.gather(1, index.unsqueeze(-1).expand(-1, -1, 2))
    return Spirals(times, clean, times.gather(1, index), values, clockwise, a, b)


def spiral_set(
    n: int = 300, *, preset: Preset = "paper text", unit_box: bool | None = None, seed: int = 0, **options: Any
) -> SeriesSet:
    """``n`` spirals as series: the noisy observations, and as target the true curve at all 150 times.

    The label is "clockwise" for the second type and "counter-clockwise" for the first, as the paper calls them.

    Args:
        n: number of spirals; the paper trains on the first 200 and tests on 100.
        preset: "paper text" or "authors' code", see :data:`PRESETS`.
        unit_box: scale all curves together to [0, 1], as :meth:`Spirals.in_unit_box`.
        **options: arguments of :func:`generate_spirals`, which override the preset's.

    Example:
        >>> from contiformer.data.synthetic import spiral_set
        >>> data = spiral_set(4)
        >>> data[0].values.shape, data[0].target_values.shape
        ((30, 2), (150, 2))
    """
    if preset not in PRESETS:
        raise DataError(f"no preset {preset!r}", remedy=did_you_mean(preset, PRESETS))
    known = inspect.signature(generate_spirals).parameters
    for name in options:
        if name not in known:
            raise DataError(f"no option {name!r} of spirals", remedy=did_you_mean(name, known))
    chosen = {**PRESETS[preset], **options}
    by_preset = chosen.pop("unit_box", False)
    spirals = generate_spirals(n, seed=seed, **chosen)
    spirals = spirals.in_unit_box() if (by_preset if unit_box is None else unit_box) else spirals
    classes = ("counter-clockwise", "clockwise")
    series = [
        Series.of(
            spirals.observed_times[i].double().numpy(),
            spirals.observed_values[i].numpy(),
            label=classes[int(spirals.clockwise[i])],
            target_times=spirals.times[i].double().numpy(),
            target_values=spirals.clean[i].numpy(),
            id=i,
        )
        for i in range(n)
    ]
    return SeriesSet(series, schema=Schema(("x", "y"), targets=("x", "y"), classes=classes))

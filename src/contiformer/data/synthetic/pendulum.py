"""Pendulum: noisy images at irregular times, with sine and cosine of the angle as targets.

The task of Becker et al. (Recurrent Kalman Networks, 2019), with irregular times by Schirmer et al. (Continuous
Recurrent Units, 2022), written from what they describe: 24 x 24 pixels, 50 of 100 equally spaced times.

**Motion.** The angle θ, 0 at rest, follows

    θ'' = -pull sin θ - friction θ' ,

integrated by the classical Runge–Kutta rule in small steps; at every one of the 100 times the velocity is pushed by
N(0, push). θ is uniform on the circle at the start, and the velocity 0.

**Picture.** A rod from the centre, white on black. A pixel's brightness is the share of it that is covered, taken from
its distance to the rod: ``clip(width / 2 + 1/2 - distance, 0, 1)`` in pixels.

**Noise**, as Becker et al. describe it. A factor f goes at random from ``f ~ U(0, 1)`` by ``f <- clip(f + u, 0, 1)``
with ``u ~ U(-0.2, 0.2)``, a step at each of the 100 times. Each series has thresholds ``a ~ U(0, 0.25)`` and
``b ~ U(0.75, 1)``: below a the factor becomes 0, above b 1, linearly in between. The image is
``f picture + (1 - f) U(0, 1)``; the first five are clear.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.data.synthetic.checks import check_count, seeded

#: Training, validation and test series of Schirmer et al.
SIZES = (2000, 1000, 1000)
#: Series whose pictures are drawn at once.
_BLOCK = 16


def pendulum_set(
    n: int = 2000,
    *,
    frames: int = 50,
    duration: int = 100,
    per_unit: int = 1,
    seconds: float = 0.01,
    pixels: int = 24,
    pull: float = 29.43,
    friction: float = 0.1,
    push: float = 0.1,
    length: float = 0.43,
    width: float = 1.5,
    correlated: bool = True,
    clear: int = 5,
    seed: int | tuple[int, ...] = 0,
) -> SeriesSet:
    """``n`` series of noisy pictures as float32 [frames, pixels²] from 0 to 1, with targets [frames, 2] at their times.

    Args:
        frames: pictures of each, at distinct times out of ``duration * per_unit``, in order.
        duration: of the trajectory, in time units.
        per_unit: possible times in a unit, equally spaced. 1: whole numbers, as in the papers' data.
        seconds: in a time unit, for the equation of motion (not in the papers' text).
        pixels: width and height of the pictures.
        pull: strength of gravity, in 1 / s² (not in the papers' text): ``3 g / l`` for a rod of inertia ``l² / 3`` per
            mass, pulled at its end, with l = 1 m.
        friction: in 1 / s (as the next, not in the papers' text).
        push: standard deviation of the random change of the velocity in a time unit, in 1 / s.
        length: of the rod, as a share of the picture's width.
        width: of the rod in pixels.
        correlated: False gives the pictures without noise.
        clear: how many of the first possible times have no noise.

    Example:
        >>> from contiformer.data.synthetic import pendulum_set
        >>> data = pendulum_set(2)
        >>> data[0].values.shape, data.schema.targets
        ((50, 576), ('sine', 'cosine'))
    """
    check_count(n, "series")
    steps = duration * per_unit
    if not (0 < frames <= steps and pixels > 0 and per_unit > 0 and clear >= 0):
        problem = f"{frames} frames of {pixels} pixels out of {steps} times, {clear} of them clear, cannot be taken"
        raise DataError(problem, remedy="pass at most duration * per_unit frames, and counts that are not negative")
    settings = np.array([seconds, pull, friction, push, length, width])
    if not (np.isfinite(settings).all() and (settings >= 0).all() and seconds > 0):
        raise DataError("seconds, pull, friction, push, length and width must be finite and not negative")
    seeds = seed if isinstance(seed, tuple) else (seed,)
    motion, choice, noise = (seeded(*seeds, part) for part in range(3))
    forces = {"pull": pull, "friction": friction, "push": push / per_unit**0.5}
    angles = swing(n, steps, step=seconds / per_unit, **forces, rng=motion)
    chosen = np.sort(choice.random((n, steps)).argsort(1, kind="stable")[:, :frames], axis=1)
    angles = np.take_along_axis(angles, chosen, axis=1)
    factors = np.take_along_axis(noise_factors(n, steps, clear=clear, rng=noise), chosen, axis=1)
    images = np.empty((n, frames, pixels**2), np.float32)
    for first in range(0, n, _BLOCK):
        block = slice(first, first + _BLOCK)
        images[block] = draw(angles[block], pixels, length=length, width=width)
        if correlated:
            f = factors[block, :, None].astype(np.float32)
            images[block] = f * images[block] + (1 - f) * noise.random(images[block].shape, np.float32)
    targets = np.stack([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)
    series = [Series.of(chosen[i] / per_unit, images[i], target_values=targets[i], id=i) for i in range(n)]
    names = tuple(f"pixel_{row}_{column}" for row in range(pixels) for column in range(pixels))
    return SeriesSet(series, schema=Schema(names, targets=("sine", "cosine"), time_unit=f"{seconds:g} s"))


def pendulum_splits(sizes: tuple[int, ...] = SIZES, *, seed: int = 0, **options: float) -> tuple[SeriesSet, ...]:
    """Independent training, validation and test sets of these sizes; options as in :func:`pendulum_set`."""
    return tuple(pendulum_set(n, seed=(seed, part), **options) for part, n in enumerate(sizes))  # type: ignore[arg-type]


def swing(
    n: int, steps: int, *, step: float, pull: float, friction: float, push: float, rng: Generator, substeps: int = 4
) -> Float64[np.ndarray, "n steps"]:
    """The angles of ``n`` pendulums at ``steps`` times, ``step`` seconds apart, the first at the start."""

    def change(state: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([state[1], -pull * np.sin(state[0]) - friction * state[1]])

    state = np.stack([rng.uniform(-np.pi, np.pi, n), np.zeros(n)])
    angles = np.empty((n, steps))
    h = step / substeps
    for k in range(steps):
        angles[:, k] = state[0]
        for _ in range(substeps):
            first = change(state)
            second = change(state + h / 2 * first)
            third = change(state + h / 2 * second)
            fourth = change(state + h * third)
            state = state + h / 6 * (first + 2 * second + 2 * third + fourth)
        state[1] += push * rng.standard_normal(n)
    return angles


def draw(
    angles: Float64[np.ndarray, "*shape"], pixels: int, *, length: float, width: float
) -> Float64[np.ndarray, "*shape pixels"]:
    """[..., pixels²], rods from the centre, downwards at angle 0 and to the right at a right angle; row by row."""
    axis = np.arange(pixels) + 0.5 - pixels / 2
    down, right = np.repeat(axis, pixels), np.tile(axis, pixels)
    cosine, sine = np.cos(angles)[..., None], np.sin(angles)[..., None]
    along = np.clip(down * cosine + right * sine, 0, length * pixels)
    distance = np.sqrt((down - along * cosine) ** 2 + (right - along * sine) ** 2)
    return np.clip(width / 2 + 0.5 - distance, 0, 1)


def noise_factors(
    n: int, steps: int, *, clear: int, rng: Generator, most: float = 0.2
) -> Float64[np.ndarray, "n steps"]:
    """The factors f of the module's description, 1 for the first ``clear`` times."""
    factors = np.empty((n, steps))
    factors[:, 0] = rng.uniform(0, 1, n)
    for k in range(1, steps):
        factors[:, k] = np.clip(factors[:, k - 1] + rng.uniform(-most, most, n), 0, 1)
    low, high = rng.uniform(0, 0.25, (n, 1)), rng.uniform(0.75, 1, (n, 1))
    factors = np.clip((factors - low) / (high - low), 0, 1)
    factors[:, :clear] = 1
    return factors

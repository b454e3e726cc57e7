"""Damped oscillators: positions and velocities measured separately, each at its own irregular times.

    x'' + 2 ζ ω x' + ω² x = 0,    0 <= ζ < 1

With γ = ζ ω and Ω = ω sqrt(1 - ζ²) the solution from (x_0, v_0) is

    x(t) = exp(-γ t) (x_0 cos Ω t + (v_0 + γ x_0) / Ω sin Ω t)
    v(t) = exp(-γ t) (v_0 cos Ω t - (ω² x_0 + γ v_0) / Ω sin Ω t)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.data.synthetic.checks import check_count, seeded

Range = tuple[float, float]


@dataclass(frozen=True)
class Oscillators:
    """Damped oscillators in arrays of one shape: ω, ζ, and position and velocity at time 0.

    Example:
        >>> import numpy as np
        >>> from contiformer.data.synthetic import Oscillators
        >>> one = Oscillators(*np.array([[2.0], [0.0], [1.0], [0.0]]))  # x(t) = cos 2t
        >>> abs(one.at(np.array([0.0, np.pi / 2]))[0, :, 0]).round(6).tolist()
        [1.0, 1.0]
    """

    omega: NDArray[np.float64]
    zeta: NDArray[np.float64]
    position: NDArray[np.float64]
    velocity: NDArray[np.float64]

    def at(self, times: Float64[np.ndarray, " times"]) -> Float64[np.ndarray, "*shape times 2"]:
        """Position and velocity at the times, by the solution in the module's description."""
        omega, zeta, x, v = (a[..., None] for a in (self.omega, self.zeta, self.position, self.velocity))
        gamma, damped = zeta * omega, omega * np.sqrt(1 - zeta**2)
        size, cosine, sine = np.exp(-gamma * times), np.cos(damped * times), np.sin(damped * times)
        position = size * (x * cosine + (v + gamma * x) / damped * sine)
        velocity = size * (v * cosine - (omega**2 * x + gamma * v) / damped * sine)
        return np.stack([position, velocity], axis=-1)


def draw_oscillators(
    n: int, count: int = 2, *, omega: Range = (1.0, 4.0), zeta: Range = (0.02, 0.2), seed: int = 0
) -> Oscillators:
    """[n, count] oscillators: ω and ζ uniform in their ranges, position and velocity / ω at time 0 standard normal."""
    check_count(n, "series")
    if count < 1:
        raise DataError(f"count must be 1 or more, got {count}")
    if not (0 < omega[0] <= omega[1] < np.inf and 0 <= zeta[0] <= zeta[1] < 1):
        problem = f"omega from {omega[0]} to {omega[1]} with zeta from {zeta[0]} to {zeta[1]} does not oscillate"
        raise DataError(problem, remedy="pass (low, high) with omega above 0 and zeta from 0 to below 1")
    rng = seeded(seed, 0)
    frequency, damping = rng.uniform(*omega, (n, count)), rng.uniform(*zeta, (n, count))
    position, velocity = rng.standard_normal((2, n, count))
    return Oscillators(frequency, damping, position, frequency * velocity)


def oscillator_set(
    n: int = 300,
    *,
    count: int = 2,
    points: tuple[int, int] = (10, 30),
    span: float = 10.0,
    targets: int = 101,
    noise: float = 0.05,
    omega: Range = (1.0, 4.0),
    zeta: Range = (0.02, 0.2),
    seed: int = 0,
) -> SeriesSet:
    """Series of ``count`` oscillators, thus 2 * count channels, and as target the true values at equally spaced times.

    Every channel is measured at its own random times, so nearly every row of the values has one number and NaN
    elsewhere. The same seed gives the same oscillators, and the same times whatever the noise.

    Args:
        count: oscillators in a series, each with a channel for its position and one for its velocity.
        points: least and most measurements of a channel.
        span: measurements and targets are from 0 to here.
        targets: number of target times, the first at 0 and the last at ``span``.
        noise: standard deviation of the errors, relative to 1 for positions and to ω for velocities.
        omega, zeta: ranges of angular frequency and damping ratio.

    Example:
        >>> from contiformer.data.synthetic import oscillator_set
        >>> data = oscillator_set(3)
        >>> data.channels
        ('position_0', 'velocity_0', 'position_1', 'velocity_1')
    """
    if not (0 < points[0] <= points[1] and 0 < span < np.inf and targets > 1 and 0 <= noise < np.inf):
        problem = f"points {points}, span {span}, targets {targets} or noise {noise} make no series"
        remedy = "pass 1 <= least <= most points, a positive span, 2 or more targets and noise of 0 or more"
        raise DataError(problem, remedy=remedy)
    oscillators = draw_oscillators(n, count, omega=omega, zeta=zeta, seed=seed)
    channels = tuple(f"{what}_{i}" for i in range(count) for what in ("position", "velocity"))
    grid = np.linspace(0, span, targets)
    truth = oscillators.at(grid)
    series = []
    for i in range(n):
        rng = seeded(seed, 1, i)
        own = [np.sort(rng.uniform(0, span, rng.integers(points[0], points[1] + 1))) for _ in channels]
        times = np.unique(np.concatenate(own))
        curves = Oscillators(*(a[i] for a in vars(oscillators).values())).at(times)
        scale = noise * np.stack([np.ones(count), oscillators.omega[i]], axis=-1)[:, None]
        measured = curves + scale * rng.standard_normal(curves.shape)
        seen = np.stack([np.isin(times, at) for at in own], axis=-1)
        values = np.where(seen, _by_time(measured), np.nan)
        series.append(Series.of(times, values, target_times=grid, target_values=_by_time(truth[i]), id=i))
    return SeriesSet(series, schema=Schema(channels=channels, targets=channels))


def _by_time(values: Float64[np.ndarray, "count times 2"]) -> Float64[np.ndarray, "times channels"]:
    return values.transpose(1, 0, 2).reshape(values.shape[1], -1)

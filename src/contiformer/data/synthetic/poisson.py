"""Events that do not influence each other: the Poisson process, at a constant rate or one that swings with the time.

λ_k(t) = r_k (1 + a_k sin(2π t / p_k + φ_k))
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.synthetic.checks import check_count, check_end, numbers, seeded
from contiformer.data.synthetic.point_process import PointProcess, as_edges
from contiformer.data.times import as_times


class Poisson(PointProcess):
    """Poisson process of K independent types; homogeneous where the amplitude is 0.

    Example:
        >>> process = Poisson(rate=[2.0, 1.0])
        >>> process.compensator(EventSequence.of([]), [0.0, 3.0]).tolist()
        [[6.0, 3.0]]
    """

    def __init__(
        self, rate: ArrayLike, *, amplitude: ArrayLike = 0.0, period: ArrayLike = 1.0, phase: ArrayLike = 0.0
    ) -> None:
        """Each argument is one number or [K].

        Args:
            rate: mean events per time, at least 0.
            amplitude: of the swing, from 0 (constant) to 1 (the rate touches 0).
            period: of the swing, above 0.
            phase: of the swing at time 0, in radians.
        """
        given = {"rate": rate, "amplitude": amplitude, "period": period, "phase": phase}
        values = [np.atleast_1d(numbers(value, name)) for name, value in given.items()]
        if any(v.ndim > 1 for v in values) or not {v.size for v in values} <= {1, max(v.size for v in values)}:
            raise DataError("rate, amplitude, period and phase do not fit together", remedy="pass one number or [K]")
        self.rate, self.amplitude, self.period, self.phase = np.broadcast_arrays(*values)
        if (self.rate < 0).any() or (self.period <= 0).any() or (np.abs(self.amplitude - 0.5) > 0.5).any():
            raise DataError("rates below 0, periods not above 0 or amplitudes outside 0 to 1 make no intensity")
        self.num_types = self.rate.size

    def intensity(self, sequence: EventSequence, times: ArrayLike) -> Float64[np.ndarray, "times types"]:
        """[T, K]; the events do not matter."""
        return self.rate * (1 + self.amplitude * np.sin(self._angle(as_times(times))))

    def compensator(self, sequence: EventSequence, edges: ArrayLike) -> Float64[np.ndarray, "intervals types"]:
        """[n, K] in closed form: ``r (b - a) + r a p / 2π (cos(angle at a) - cos(angle at b))``."""
        at = as_edges(edges)
        swing = self.rate * self.amplitude * self.period / (2 * np.pi)
        return self.rate * np.diff(at)[:, None] - swing * np.diff(np.cos(self._angle(at)), axis=0)

    def _angle(self, times: Float64[np.ndarray, " times"]) -> Float64[np.ndarray, "times types"]:
        return 2 * np.pi * times[:, None] / self.period + self.phase

    def simulate(self, end: float, *, rng: np.random.Generator, id: str | int | None = None) -> EventSequence:
        """Events from 0 to ``end``: uniform points at the highest rate, each kept with its share of that rate."""
        check_end(end)
        highest = self.rate * (1 + self.amplitude)
        if highest.sum() * end > 1e8:
            raise DataError(f"about {highest.sum() * end:.3g} events until {end}", remedy="shorten the window")
        types = np.repeat(np.arange(self.num_types), rng.poisson(highest * end))
        times = rng.uniform(0, end, len(types))
        rates = self.intensity(EventSequence.of([]), times)[np.arange(len(types)), types]
        kept = rng.random(len(types)) * highest[types] < rates
        return EventSequence.of(times[kept], types[kept], id=id)


#: Three types; the first constant, the others swinging against each other.
EXAMPLE = Poisson([0.4, 0.6, 0.6], amplitude=[0.0, 0.8, 0.8], period=10.0, phase=[0.0, 0.0, np.pi])


def poisson_set(n: int = 500, *, end: float = 40.0, process: Poisson = EXAMPLE, seed: int = 0) -> EventSet:
    """``n`` sequences from 0 to ``end``. Sequence i is the same whatever ``n`` is.

    Example:
        >>> poisson_set(2, end=10.0)
        EventSet(2 sequences, 3 types)
    """
    check_count(n)
    sequences = [process.simulate(end, rng=seeded(seed, i), id=i) for i in range(n)]
    return EventSet(sequences, num_types=process.num_types)

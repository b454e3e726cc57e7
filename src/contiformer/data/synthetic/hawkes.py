"""Events that make further events more likely: the multivariate Hawkes process with exponential kernels.

    λ_k(t) = μ_k + Σ_{t_j < t} α[k, k_j] exp(-β[k, k_j] (t - t_j))

An event of type j causes α[k, j] / β[k, j] events of type k directly. The process is stable when the largest eigenvalue
of that matrix is below 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.synthetic.checks import check_count, check_end, numbers, seeded
from contiformer.data.synthetic.point_process import PointProcess, as_edges, check_types
from contiformer.data.times import as_times

#: The largest array, in numbers, that intensities are computed with at once.
_AT_ONCE = 2_000_000


class Hawkes(PointProcess):
    """Hawkes process with baseline ``mu`` [K], jumps ``alpha`` [K, K] and decays ``beta``.

    Example:
        >>> process = Hawkes(mu=[0.5], alpha=[[0.8]], beta=2.0)
        >>> process.branching.tolist()
        [[0.4]]
        >>> pair = EventSequence.of([1.0, 2.0])
        >>> process.intensity(pair, [1.0, 2.0]).round(4).ravel().tolist()
        [0.5, 0.6083]
    """

    def __init__(self, mu: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> None:
        """Check shapes, signs and stability.

        Args:
            mu: [K], events per time of each type that have no cause; at least 0.
            alpha: [K, K], alpha[k, j] is the jump in the intensity of type k after an event of type j; at least 0.
            beta: decay per time, above 0: one number, or [K, K] for one per pair of types.

        Raises:
            DataError: also when the spectral radius of ``alpha / beta`` is 1 or more: the process would explode.
        """
        self.mu = numbers(mu, "mu")
        self.num_types = K = self.mu.size
        self.alpha, self.beta = numbers(alpha, "alpha"), numbers(beta, "beta")
        if self.mu.ndim != 1 or self.alpha.shape != (K, K) or self.beta.shape not in ((), (K, K)) or K == 0:
            raise DataError(
                f"mu {self.mu.shape}, alpha {self.alpha.shape} and beta {self.beta.shape} do not fit together",
                remedy="pass mu [K], alpha [K, K] and beta as one number or [K, K]",
            )
        if (self.mu < 0).any() or (self.alpha < 0).any() or (self.beta <= 0).any():
            raise DataError("mu and alpha cannot be negative, and beta must be positive")
        self.beta = np.broadcast_to(self.beta, (K, K))
        self.branching: Float64[np.ndarray, "types types"] = self.alpha / self.beta
        radius = float(np.abs(np.linalg.eigvals(self.branching)).max())
        if not radius < 1:
            raise DataError(
                f"the process explodes: the spectral radius of alpha / beta is {radius:.4g}",
                remedy="make alpha smaller or beta larger, until it is below 1",
            )

    @property
    def mean_rate(self) -> Float64[np.ndarray, " types"]:
        """Events per time in the long run: ``(I - α/β)^-1 μ``."""
        return np.linalg.solve(np.eye(self.num_types) - self.branching, self.mu)

    def intensity(self, sequence: EventSequence, times: ArrayLike) -> Float64[np.ndarray, "times types"]:
        """[T, K], see the formula of the module."""
        return self.mu + self._sum_over_history(sequence, as_times(times), integrated=False)

    def compensator(self, sequence: EventSequence, edges: ArrayLike) -> Float64[np.ndarray, "intervals types"]:
        """[n, K] in closed form: ``μ_k (b - a)`` and, for each event, ``α/β (1 - exp(-β (t - t_j)))`` from a to b."""
        at = as_edges(edges)
        caused = self._sum_over_history(sequence, at, integrated=True)
        return self.mu * np.diff(at)[:, None] + np.diff(caused, axis=0)

    def _sum_over_history(
        self, sequence: EventSequence, times: NDArray[np.float64], *, integrated: bool
    ) -> NDArray[np.float64]:
        check_types(sequence, self.num_types)
        size, decay = ((self.branching if integrated else self.alpha).T[sequence.types], self.beta.T[sequence.types])
        result = np.zeros((len(times), self.num_types))
        rows = max(1, _AT_ONCE // max(1, size.size))
        for first in range(0, len(times), rows):
            age = times[first : first + rows, None] - sequence.times
            exponent = decay * np.maximum(age, 0)[..., None]
            kernel = -np.expm1(-exponent) if integrated else np.exp(-exponent)
            result[first : first + rows] = ((age > 0)[..., None] * size * kernel).sum(1)
        return result

    def simulate(
        self,
        end: float,
        *,
        rng: np.random.Generator,
        id: str | int | None = None,
        most_events: int = 1_000_000,
    ) -> EventSequence:
        """Events from 0 to ``end``, with none before 0; exact, and without rejections.

        Between events the intensity is a sum of independent parts, so the next event is the first of one for each
        part: Exp(μ_k) for the baseline, and for an excitation of size R that decays as ``R exp(-β s)`` the waiting
        time ``-log(1 - β E / R) / β`` with E ~ Exp(1), or never where that is not defined (the mass R / β is finite).

        Args:
            end: of the window.
            rng: what draws.
            id: of the sequence.
            most_events: more than that is refused, so that nearly unstable parameters cannot fill the memory.
        """
        check_end(end)
        K = self.num_types
        excitation = np.zeros((K, K))
        now = 0.0
        times: list[float] = []
        types: list[int] = []
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            while True:
                draws = rng.exponential(size=(K, K + 1))
                left = 1 - self.beta * draws[:, 1:] / excitation
                caused = np.where(left > 0, -np.log(left) / self.beta, np.inf)
                waiting = np.minimum(draws[:, 0] / self.mu, caused.min(1))
                kind = int(waiting.argmin())
                now += float(waiting[kind])
                if not now <= end:
                    return EventSequence.of(times, types, id=id)
                if len(times) >= most_events:
                    raise DataError(f"more than {most_events} events until {end}", remedy="shorten the window")
                excitation = excitation * np.exp(-self.beta * waiting[kind])
                excitation[:, kind] += self.alpha[:, kind]
                times.append(now)
                types.append(kind)


#: Two types, each exciting itself and the other; radius 0.57, 1.1 events per time in the long run.
EXAMPLE = Hawkes(mu=[0.3, 0.15], alpha=[[0.8, 0.3], [0.6, 0.6]], beta=2.0)


def hawkes_set(n: int = 500, *, end: float = 50.0, process: Hawkes = EXAMPLE, seed: int = 0) -> EventSet:
    """``n`` sequences from 0 to ``end``. Sequence i is the same whatever ``n`` is.

    Example:
        >>> hawkes_set(3, end=10.0)
        EventSet(3 sequences, 2 types)
    """
    check_count(n)
    sequences = [process.simulate(end, rng=seeded(seed, i), id=i) for i in range(n)]
    return EventSet(sequences, num_types=process.num_types)

"""Point processes with a known intensity: true log-likelihood and residuals; Poisson and Hawkes processes.

The Poisson process has a rate that is constant or swings with the time,

    λ_k(t) = r_k (1 + a_k sin(2π t / p_k + φ_k)) ,

and in the multivariate Hawkes process with exponential kernels events make further events more likely,

    λ_k(t) = μ_k + Σ_{t_j < t} α[k, k_j] exp(-β[k, k_j] (t - t_j)) .

An event of type j causes α[k, j] / β[k, j] events of type k directly. The process is stable when the largest eigenvalue
of that matrix is below 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.conversion import as_times
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.synthetic.checks import check_count, check_end, numbers, seeded

#: The largest array, in numbers, that intensities are computed with at once.
_AT_ONCE = 2_000_000


class PointProcess(ABC):
    """A marked point process given by its intensities ``λ_k(t)``, k = 0..K-1, which depend on the events before t.

    "Before" is strict: ``λ_k`` at the time of an event does not see that event, nor others at the same time.

    Example:
        >>> from contiformer.data import EventSequence
        >>> from contiformer.data.synthetic import Poisson
        >>> Poisson([2.0]).log_likelihood(EventSequence.of([1.0, 2.0]), start=0.0, end=3.0)  # 2 log 2 - 6
        -4.613705638880109
    """

    num_types: int

    @abstractmethod
    def intensity(self, sequence: EventSequence, times: ArrayLike) -> Float64[np.ndarray, "times types"]:
        """[T, K], ``λ_k(t)`` at any times, given the sequence's events before each."""

    @abstractmethod
    def compensator(self, sequence: EventSequence, edges: ArrayLike) -> Float64[np.ndarray, "intervals types"]:
        """[n, K], the integral of ``λ_k`` between each of the n + 1 edges and the next; edges never decrease."""

    def log_likelihood(self, sequence: EventSequence, *, start: float | None = None, end: float | None = None) -> float:
        """The true log-likelihood ``Σ_j log λ_{k_j}(t_j) - ∫ Σ_k λ_k(t) dt``, in the unit of the times.

        By default the first event is given and not scored, as for the models. With ``start``, everything up to it is
        given: the sum runs over ``start < t_j``, the integral begins there; with ``end``, both stop there. A sequence
        observed from 0 to T has its full likelihood with ``start=0, end=T``. An event that cannot happen gives -inf.
        """
        check_types(sequence, self.num_types)
        times = sequence.times
        if not len(times) and (start is None or end is None):
            return 0.0
        begin, stop = float(times[0] if start is None else start), float(times[-1] if end is None else end)
        if not (np.isfinite([begin, stop]).all() and begin <= stop):
            raise DataError(f"no time passes from {begin} to {stop}", remedy="pass start <= end, both finite")
        scored = times <= stop
        scored &= np.arange(len(times)) > 0 if start is None else times > begin
        rates = self.intensity(sequence, times[scored])[np.arange(int(scored.sum())), sequence.types[scored]]
        with np.errstate(divide="ignore"):
            return float(np.log(rates).sum() - self.compensator(sequence, [begin, stop]).sum())

    def residuals(self, sequence: EventSequence, *, start: float | None = None) -> Float64[np.ndarray, " gaps"]:
        """The integrated intensity from each event to the next: independent and Exp(1) if this process made them.

        With ``start`` the gap from there to the first event comes first.
        """
        edges = sequence.times if start is None else np.concatenate([[start], sequence.times])
        return self.compensator(sequence, edges).sum(1)


def check_types(sequence: EventSequence, num_types: int) -> None:
    """Refuse types the process does not have."""
    if len(sequence) and sequence.types.max() >= num_types:
        problem = f"an event of type {int(sequence.types.max())} in a process of {num_types} types"
        raise DataError(problem, remedy="types count from 0")


def as_edges(edges: ArrayLike) -> NDArray[np.float64]:
    """Finite, none before the one in front of it."""
    array = as_times(edges, "edges")
    if (np.diff(array) < 0).any():
        raise DataError("the edges of the intervals are not in order", remedy="sort them")
    return array


class Poisson(PointProcess):
    """Poisson process of K independent types; homogeneous where the amplitude is 0.

    Example:
        >>> from contiformer.data import EventSequence
        >>> from contiformer.data.synthetic import Poisson
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
            raise DataError(
                "rate, amplitude, period and phase are of different lengths", remedy="pass one number or [K]"
            )
        self.rate, self.amplitude, self.period, self.phase = np.broadcast_arrays(*values)
        if (self.rate < 0).any() or (self.period <= 0).any() or (np.abs(self.amplitude - 0.5) > 0.5).any():
            raise DataError("rate must not be negative, period must be positive, and amplitude from 0 to 1")
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


class Hawkes(PointProcess):
    """Hawkes process with baseline ``mu`` [K], jumps ``alpha`` [K, K] and decays ``beta``.

    Example:
        >>> from contiformer.data import EventSequence
        >>> from contiformer.data.synthetic import Hawkes
        >>> process = Hawkes(mu=[0.5], alpha=[[0.8]], beta=2.0)
        >>> process.intensity(EventSequence.of([1.0, 2.0]), [1.0, 2.0]).round(4).ravel().tolist()
        [0.5, 0.6083]
    """

    def __init__(self, mu: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> None:
        """Check shapes, signs and stability: the spectral radius of ``alpha / beta`` must be below 1.

        Args:
            mu: [K], events per time of each type that have no cause; at least 0.
            alpha: [K, K], alpha[k, j] is the jump in the intensity of type k after an event of type j; at least 0.
            beta: decay per time, above 0: one number, or [K, K] for one per pair of types.
        """
        self.mu = numbers(mu, "mu")
        self.num_types = K = self.mu.size
        self.alpha, self.beta = numbers(alpha, "alpha"), numbers(beta, "beta")
        if self.mu.ndim != 1 or self.alpha.shape != (K, K) or self.beta.shape not in ((), (K, K)) or K == 0:
            problem = f"mu {self.mu.shape}, alpha {self.alpha.shape} and beta {self.beta.shape} do not fit together"
            raise DataError(problem, remedy="pass mu [K], alpha [K, K] and beta as one number or [K, K]")
        if (self.mu < 0).any() or (self.alpha < 0).any() or (self.beta <= 0).any():
            raise DataError("mu and alpha cannot be negative, and beta must be positive")
        self.beta = np.broadcast_to(self.beta, (K, K))
        self.branching: Float64[np.ndarray, "types types"] = self.alpha / self.beta
        radius = float(np.abs(np.linalg.eigvals(self.branching)).max())
        if not radius < 1:
            problem = f"the process explodes: the spectral radius of alpha / beta is {radius:.4g}"
            raise DataError(problem, remedy="make alpha smaller or beta larger, until it is below 1")

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
        size, decay = (self.branching if integrated else self.alpha).T[sequence.types], self.beta.T[sequence.types]
        result = np.zeros((len(times), self.num_types))
        rows = max(1, _AT_ONCE // max(1, size.size))
        for first in range(0, len(times), rows):
            age = times[first : first + rows, None] - sequence.times
            exponent = decay * np.maximum(age, 0)[..., None]
            kernel = -np.expm1(-exponent) if integrated else np.exp(-exponent)
            result[first : first + rows] = ((age > 0)[..., None] * size * kernel).sum(1)
        return result

    def simulate(
        self, end: float, *, rng: np.random.Generator, id: str | int | None = None, most_events: int = 1_000_000
    ) -> EventSequence:
        """Events from 0 to ``end``, with none before 0; exact, and without rejections.

        Between events the intensity is a sum of independent parts, so the next event is the first of one for each
        part: Exp(μ_k) for the baseline, and for an excitation of size R that decays as ``R exp(-β s)`` the waiting
        time ``-log(1 - β E / R) / β`` with E ~ Exp(1), or never where that is not defined (the mass R / β is finite).
        More than ``most_events`` are refused, so that nearly unstable parameters cannot fill the memory.
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


#: Three types; the first constant, the others swinging against each other.
POISSON_EXAMPLE = Poisson([0.4, 0.6, 0.6], amplitude=[0.0, 0.8, 0.8], period=10.0, phase=[0.0, 0.0, np.pi])
#: Two types, each exciting itself and the other; radius 0.57, 1.1 events per time in the long run.
HAWKES_EXAMPLE = Hawkes(mu=[0.3, 0.15], alpha=[[0.8, 0.3], [0.6, 0.6]], beta=2.0)


def poisson_set(n: int = 500, *, end: float = 40.0, process: Poisson = POISSON_EXAMPLE, seed: int = 0) -> EventSet:
    """``n`` sequences from 0 to ``end``. Sequence i is the same whatever ``n`` is."""
    return _simulated(process, n, end, seed)


def hawkes_set(n: int = 500, *, end: float = 50.0, process: Hawkes = HAWKES_EXAMPLE, seed: int = 0) -> EventSet:
    """``n`` sequences from 0 to ``end``. Sequence i is the same whatever ``n`` is.

    Example:
        >>> from contiformer.data.synthetic import hawkes_set
        >>> data = hawkes_set(20, seed=0)
        >>> len(data), data.num_types
        (20, 2)
    """
    return _simulated(process, n, end, seed)


def _simulated(process: Poisson | Hawkes, n: int, end: float, seed: int) -> EventSet:
    check_count(n)
    return EventSet([process.simulate(end, rng=seeded(seed, i), id=i) for i in range(n)], num_types=process.num_types)

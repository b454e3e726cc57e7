"""Maximum likelihood for the multivariate Hawkes process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.hawkes import Decay, HawkesModel

Array = NDArray[np.float64]
#: Least jump and largest decay, per mean wait; events at one time would drive a decay to infinity.
_LEAST_ALPHA, _MOST_BETA = 1e-6, 1e3
#: Least decay over the longest sequence: slower ones cannot be told from none.
_LEAST_BETA = 0.1
#: Decays that are tried as a start.
_STARTS = (0.1, 0.5, 2.0, 10.0)
#: Pairs of events in one sequence, at most (16 bytes each).
_MOST_PAIRS = 200_000_000


@dataclass(frozen=True)
class HawkesFit:
    """A Hawkes process by maximum likelihood.

    Attributes:
        model: the process, in float64.
        log_likelihood: of the training data in scaled time: the sum over all events but the first of each sequence.
        events: their number.
        converged, message: whether no step improved it further, and why the search ended.
    """

    model: HawkesModel
    log_likelihood: float
    events: int
    converged: bool
    message: str


def fit_hawkes(
    data: EventSet, *, decay: Decay = "pair", max_iterations: int = 5000, tolerance: float = 1e-6
) -> HawkesFit:
    """The parameters of :class:`HawkesModel` that make the sequences most likely, by L-BFGS-B in float64.

    The search is over logarithms of the parameters. It begins at moments: half of each type's mean rate without a
    cause, the other half caused by the type of the event right before, in the proportions of the data, with the best of
    a few decays. The likelihood is not concave in β, so a better maximum may exist. With a decay for each pair of types
    time and memory grow with the square of a sequence's length.

    Bounds keep it defined on sparse data: ``μ_k`` is at least half an event in all the time observed, α at least 1e-6
    per mean wait, and β at least 0.1 over the longest sequence and at most 1e3 per mean wait. Stability, a spectral
    radius of α/β below 1, is not required: a long simulation may explode.

    ``data`` are scaled sequences. The search ends at a slope of ``tolerance``, per event and per logarithm of a
    parameter.
    """
    scaling = EventScaling.fit(data)
    likelihood = _Likelihood(data, shared=decay == "shared")
    bounds = likelihood.bounds()
    starts = [np.clip(likelihood.start(beta), bounds[:, 0], bounds[:, 1]) for beta in _STARTS]
    start = min(starts, key=lambda x: likelihood(x)[0])
    limits = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "gtol": tolerance, "ftol": 1e-13, "maxcor": 30}
    found = minimize(likelihood, start, jac=True, method="L-BFGS-B", bounds=bounds, options=limits)
    if not found.success:
        warnings.warn(
            f"the Hawkes process did not converge ({found.message}); give it more than {max_iterations} iterations",
            stacklevel=2,
        )
    mu, alpha, beta = likelihood.parameters(found.x)
    model = HawkesModel(scaling, decay=decay).double().set(mu, alpha, beta)
    total = -float(found.fun) * likelihood.events
    return HawkesFit(model, total, likelihood.events, bool(found.success), str(found.message))


class _Likelihood:
    """Minus the log-likelihood per event, and its slope, as a function of the logarithms of μ, α and β.

    With ages ``a_ij = t_i - t_j`` and the time ``r_j`` from event j to the end of its sequence

        ℓ = Σ_i log(μ_{k_i} + Σ_{j<i} α e^{-β a_ij}) - Σ_k μ_k T - Σ_k Σ_j α / β (1 - e^{-β r_j}).
    """

    def __init__(self, data: EventSet, *, shared: bool) -> None:
        self.K, self.shared = data.num_types, shared
        K = self.K
        sequences = [s for s in data if len(s) > 1]
        left: list[list[Array]] = [[] for _ in range(K)]
        self.time, self.longest = 0.0, 0.0
        self.follow = np.zeros((K, K))
        for sequence in sequences:
            times, types = sequence.times, sequence.types
            np.add.at(self.follow, (types[1:], types[:-1]), 1)
            for kind in np.unique(types):
                left[kind].append(times[-1] - times[types == kind])
            self.time += times[-1] - times[0]
            self.longest = max(self.longest, times[-1] - times[0])
        self.sums = (ChainSums if shared else PairSums)(sequences, K)
        self.events = len(self.sums.kinds)
        self.left = [np.concatenate([*x, np.zeros(0)]) for x in left]
        self.counts = np.bincount(self.sums.kinds, minlength=K)

    def parameters(self, x: Array) -> tuple[Array, Array, Array]:
        """μ [K], α [K, K], and β [K, K] or a number."""
        K = self.K
        mu, alpha, beta = np.split(np.exp(x), [K, K + K * K])
        return mu, alpha.reshape(K, K), beta.reshape(() if self.shared else (K, K))

    def start(self, beta: float) -> Array:
        """By moments, see :func:`fit_hawkes`."""
        rates = (self.counts + 0.5) / self.time
        causes = self.follow.sum(0)
        caused = (self.follow + rates[:, None] / rates.sum()) / (causes + 1)
        caused = np.where(self.sums.seen, caused, 1e-12)  # below the bound, where its best value is
        decay = np.full(1 if self.shared else self.K**2, beta)
        return np.log(np.concatenate([rates / 2, (beta * caused / 2).ravel(), decay]))

    def bounds(self) -> Float64[np.ndarray, "parameters 2"]:
        """Of the logarithms."""
        unit, K = self.time / self.events, self.K
        sizes = (K, K * K, 1 if self.shared else K * K)
        least = np.repeat([0.5 / self.time, _LEAST_ALPHA / unit, _LEAST_BETA / self.longest], sizes)
        most = np.full_like(least, _MOST_BETA**2 / unit)
        most[K + K * K :] = _MOST_BETA / unit
        return np.log(np.stack([least, most], 1))

    def __call__(self, x: Array) -> tuple[float, Array]:
        K = self.K
        mu, alpha, beta = self.parameters(x)
        wide = np.broadcast_to(beta, (K, K))
        rate, by_alpha, by_beta = self.sums(mu, alpha, beta)
        mass, tail = np.zeros((K, K)), np.zeros((K, K))
        for kind, left in enumerate(self.left):
            # one column of α and β; with a shared β all of its rows are alike
            exponent = left[:, None] * (beta[None, None] if self.shared else beta[:, kind])
            mass[:, kind] = -np.expm1(-exponent).sum(0)
            tail[:, kind] = (left[:, None] * np.exp(-exponent)).sum(0)
        expected = alpha / wide * mass
        value = np.log(rate).sum() - mu.sum() * self.time - expected.sum()
        kinds = self.sums.kinds
        by_mu = np.bincount(kinds, mu[kinds] / rate, K) - mu * self.time
        # how the expected number of events depends on the decays
        fewer = expected - alpha * tail
        decays = np.ravel(by_beta + (fewer.sum() if self.shared else fewer))
        slope = np.concatenate([by_mu, (by_alpha - expected).ravel(), decays])
        return -float(value) / self.events, -slope / self.events


class EventTerm(NamedTuple):
    """``Σ_i log λ(t_i)``: the rate at each event, and the slope of the sum in the logarithms of α and β."""

    rate: Float64[np.ndarray, " events"]
    by_alpha: Float64[np.ndarray, "types types"]
    by_beta: Float64[np.ndarray, "types types"] | float


class PairSums:
    """Over all pairs of events of a sequence, each pair of types with its own decay: time and memory are quadratic.

    Attributes:
        kinds: the type of each event but the first of a sequence, in an order of its own.
        seen: whether type j ever came before type k in a sequence, [k, j].
    """

    def __init__(self, sequences: list[EventSequence], num_types: int) -> None:
        pairs = sum(len(s) * (len(s) - 1) // 2 for s in sequences)
        if pairs > _MOST_PAIRS:
            raise DataError(f"sequences with {pairs:.3g} pairs of events", remedy="cut the sequences into shorter ones")
        K = self.num_types = num_types
        rows, codes, ages, kinds = [], [], [], []
        events = 0
        for sequence in sequences:
            times, types = sequence.times, sequence.types
            late, early = np.tril_indices(len(sequence), -1)
            rows.append((late + (events - 1)).astype(np.int32))
            codes.append((types[late] * K + types[early]).astype(np.int32))
            ages.append(times[late] - times[early])
            kinds.append(types[1:])
            events += len(sequence) - 1
        self.rows, self.codes, self.ages, self.kinds = (np.concatenate(x) for x in (rows, codes, ages, kinds))
        self.seen = np.bincount(self.codes, minlength=K * K).reshape(K, K) > 0

    def __call__(self, mu: Array, alpha: Array, beta: Array) -> EventTerm:
        """``Σ_j α e^{-β a_ij}`` with ages ``a_ij = t_i - t_j``."""
        K = self.num_types
        part = alpha.ravel()[self.codes] * np.exp(-beta.ravel()[self.codes] * self.ages)
        rate = mu[self.kinds] + np.bincount(self.rows, part, len(self.kinds))
        part /= rate[self.rows]
        by_alpha = np.bincount(self.codes, part, K * K).reshape(K, K)
        by_beta = -beta * np.bincount(self.codes, part * self.ages, K * K).reshape(K, K)
        return EventTerm(rate, by_alpha, by_beta)


class ChainSums:
    """With one decay for all, by Ozaki's recursion: time grows with the length.

    ``R_i[j] = Σ e^{-β a}`` over the earlier events of type j, and ``S_i[j] = Σ a e^{-β a}``. An event later by d these
    are ``e^{-β d} R`` and ``e^{-β d} (S + d R)``. All sequences go step by step together, the longest first. The
    attributes are those of :class:`PairSums`.
    """

    def __init__(self, sequences: list[EventSequence], num_types: int) -> None:
        self.num_types = num_types
        ordered = sorted(sequences, key=len, reverse=True)
        lengths = np.array([len(s) for s in ordered])
        self.waits, self.before, self.steps = [], [], []
        for step in range(1, lengths[0]):
            here = ordered[: int((lengths > step).sum())]
            self.waits.append(np.array([s.times[step] - s.times[step - 1] for s in here]))
            self.before.append(np.array([s.types[step - 1] for s in here]))
            self.steps.append(np.array([s.types[step] for s in here]))
        self.kinds = np.concatenate(self.steps)
        self.rows = np.eye(num_types)
        self.seen = np.zeros((num_types, num_types), dtype=bool)
        for kind, counts, _ in self._earlier(0.0):
            self.seen |= self.rows[kind].T @ counts > 0

    def __call__(self, mu: Array, alpha: Array, beta: Array) -> EventTerm:
        """``Σ_j α[k_i, j] R_i[j]``."""
        decay, rates = float(beta), []
        by_alpha, by_beta = np.zeros_like(alpha), np.zeros_like(alpha)
        for kind, R, S in self._earlier(decay):
            rate = mu[kind] + np.einsum("ij,ij->i", alpha[kind], R)
            share = (self.rows[kind] / rate[:, None]).T
            by_alpha += share @ R
            by_beta += share @ S
            rates.append(rate)
        return EventTerm(np.concatenate(rates), alpha * by_alpha, -decay * float((alpha * by_beta).sum()))

    def _earlier(self, decay: float) -> Iterator[tuple[NDArray[np.int64], Array, Array]]:
        """Types, R and S of the second events, of the third and so on; what R and S are kept in is used again."""
        R, S = (np.zeros((len(self.waits[0]), self.num_types)) for _ in range(2))
        for wait, before, kind in zip(self.waits, self.before, self.steps, strict=True):
            R, S = R[: len(wait)], S[: len(wait)]
            R[np.arange(len(wait)), before] += 1
            faded = np.exp(-decay * wait)[:, None]
            S += wait[:, None] * R
            S *= faded
            R *= faded
            yield kind, R, S

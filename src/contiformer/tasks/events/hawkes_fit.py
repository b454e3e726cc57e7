"""Maximum likelihood for the multivariate Hawkes process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]

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


@dataclass(frozen=True)
class HawkesFit:
    """A Hawkes process by maximum likelihood, in float64.

    ``log_likelihood`` is the sum over all ``events`` but the first of each sequence, in scaled time.
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
    a few decays. The likelihood is not concave in β, so a better maximum may exist.

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
        self.sums = EarlierEvents(sequences, K)
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
        """Lower and upper bounds of the logarithms."""
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


class EarlierEvents:
    """Sums over the earlier events of each sequence by Ozaki's recursion: time and memory grow with the length.

    ``R_i[k, j] = Σ e^{-β[k, j] a}`` over the ages a of the earlier events of type j, and ``S_i[k, j] = Σ a e^{-β a}``.
    An event later by d these are ``e^{-β d} R`` and ``e^{-β d} (S + d R)``. With one decay for all, R and S have one
    row k. All sequences go step by step together, the longest first.

    Attributes:
        kinds: the type of each event but the first of a sequence, in an order of its own.
        seen: whether type j ever came before type k in a sequence, [k, j].
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
        for kind, counts, _ in self._sums(np.zeros(())):
            self.seen |= self.rows[kind].T @ counts > 0

    def __call__(self, mu: Array, alpha: Array, beta: Array) -> EventTerm:
        """The rates ``μ_k + Σ_j α[k, j] R_i[k, j]`` with ``k = k_i``, and the slopes; β is [K, K] or a number."""
        rates = []
        by_alpha, by_beta = np.zeros_like(alpha), np.zeros_like(alpha)
        for kind, R, S in self._sums(beta):
            rate = mu[kind] + np.einsum("ij,ij->i", alpha[kind], R)
            share = (self.rows[kind] / rate[:, None]).T
            by_alpha += share @ R
            by_beta += share @ S
            rates.append(rate)
        by_decay = -beta * alpha * by_beta
        return EventTerm(np.concatenate(rates), alpha * by_alpha, by_decay if beta.ndim else float(by_decay.sum()))

    def _sums(self, beta: Array) -> Iterator[tuple[NDArray[np.int64], Array, Array]]:
        """Types and their rows of R and S of the second events, of the third and so on; views that are used again."""
        K, decay = self.num_types, beta.ravel()
        rows = K if beta.ndim else 1
        R, S = (np.zeros((len(self.waits[0]), rows * K)) for _ in range(2))
        for wait, before, kind in zip(self.waits, self.before, self.steps, strict=True):
            R, S, each = R[: len(wait)], S[: len(wait)], np.arange(len(wait))
            for row in range(rows):
                R[each, row * K + before] += 1
            faded = np.exp(-wait[:, None] * decay)
            S += wait[:, None] * R
            S *= faded
            R *= faded
            own: Any = (each, kind) if rows > 1 else np.s_[:, 0]
            yield kind, R.reshape(-1, rows, K)[own], S.reshape(-1, rows, K)[own]

"""Maximum likelihood for the multivariate Hawkes process."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]

from contiformer.data.event_scaling import EventScaling
from contiformer.data.events import EventSet
from contiformer.tasks.events.models.hawkes import Decay, HawkesModel
from contiformer.tasks.events.models.hawkes_sums import ChainSums, PairSums, Sums

#: Least jump and largest decay, per mean wait; events at one time would drive a decay to infinity.
_LEAST_ALPHA, _MOST_BETA = 1e-6, 1e3
#: Least decay over the longest sequence: slower ones cannot be told from none.
_LEAST_BETA = 0.1
#: Decays that are tried as a start.
_STARTS = (0.1, 0.5, 2.0, 10.0)
#: Standard errors take the inverse of a matrix of this size at most.
_MOST_ERRORS = 150


@dataclass(frozen=True)
class HawkesFit:
    """What maximum likelihood found.

    Attributes:
        model: the process, in float64.
        log_likelihood: of the training data in scaled time: the sum over all events but the first of each sequence.
        events: how many those are.
        converged: whether no step improved it further.
        message: why the search ended.
        mu_error, alpha_error, beta_error: standard errors from the observed information, in the shapes of the
            parameters (one number for a shared β); NaN where a parameter lies on a bound or is not determined by the
            data; None where there are too many parameters.
    """

    model: HawkesModel
    log_likelihood: float
    events: int
    converged: bool
    message: str
    mu_error: Float64[np.ndarray, " types"] | None = None
    alpha_error: Float64[np.ndarray, "types types"] | None = None
    beta_error: NDArray[np.float64] | None = None


def fit_hawkes(
    data: EventSet, *, decay: Decay = "pair", max_iterations: int = 5000, tolerance: float = 1e-6, errors: bool = True
) -> HawkesFit:
    """The parameters of :class:`HawkesModel` that make the sequences most likely, by L-BFGS-B in float64.

    The search is over logarithms of the parameters. It begins at moments: half of each type's mean rate without a
    cause, the other half caused by the type of the event right before, in the proportions of the data, with the best of
    a few decays. The likelihood is not concave in β, so a better maximum may exist. With a decay for each pair of types
    its sums run over all pairs of events in a sequence: time and memory grow with the square of the length.

    Bounds keep it defined on sparse data: ``μ_k`` is at least half an event in all the time observed, so that a type
    that was never seen is not impossible; α is at least 1e-6 per mean wait, which it is for types of which one never
    came before the other; β is at least 0.1 over the longest sequence and at most 1e3 per mean wait. Stability, a
    spectral radius of α/β below 1, is not asked for: a long simulation of what was fitted may explode.

    Args:
        data: scaled sequences.
        decay: see :class:`HawkesModel`.
        max_iterations: a warning says where they were not enough.
        tolerance: largest slope, per event and per logarithm of a parameter, at which the search ends.
        errors: whether to compute standard errors, where there are few enough parameters.

    Raises:
        DataError: no sequence has two events, all is at one time, or sequences are too long.
    """
    scaling = EventScaling.fit(data)
    likelihood = _Likelihood(data, shared=decay == "shared")
    bounds = likelihood.bounds()
    starts = [np.clip(likelihood.start(beta), bounds[:, 0], bounds[:, 1]) for beta in _STARTS]
    start = min(starts, key=lambda x: likelihood(x)[0])
    found = minimize(
        likelihood,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={
            "maxiter": max_iterations,
            "maxfun": 2 * max_iterations,
            "gtol": tolerance,
            "ftol": 1e-13,
            "maxcor": 30,
        },
    )
    if not found.success:
        warnings.warn(
            f"the Hawkes process did not converge ({found.message}); give it more than {max_iterations} iterations",
            stacklevel=2,
        )
    mu, alpha, beta = likelihood.parameters(found.x)
    model = HawkesModel(scaling, decay=decay).double().set(mu, alpha, beta)
    fit = (model, -float(found.fun) * likelihood.events, likelihood.events, bool(found.success), str(found.message))
    if not errors or len(found.x) > _MOST_ERRORS:
        return HawkesFit(*fit)
    return HawkesFit(*fit, *likelihood.split(_errors(likelihood, found.x, bounds) * np.exp(found.x)))


def _errors(likelihood: _Likelihood, x: NDArray[np.float64], bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard errors of the logarithms: the root of the diagonal of the inverse information."""
    free = np.flatnonzero((x > bounds[:, 0] + 1e-6) & (x < bounds[:, 1] - 1e-6))
    step = 1e-4
    rows = []
    for which in free:
        move = np.zeros_like(x)
        move[which] = step
        rows.append((likelihood(x + move)[1] - likelihood(x - move)[1])[free] / (2 * step))
    result = np.full_like(x, np.nan)
    if not rows:
        return result
    information = likelihood.events * (np.array(rows) + np.array(rows).T) / 2
    try:
        variance = np.diag(np.linalg.inv(information))
    except np.linalg.LinAlgError:
        return result
    result[free] = np.sqrt(np.where(variance > 0, variance, np.nan))
    return result


class _Likelihood:
    """Minus the log-likelihood per event, and its slope, as a function of the logarithms of μ, α and β.

    With ages ``a_ij = t_i - t_j`` and the time ``r_j`` from event j to the end of its sequence

        ℓ = Σ_i log(μ_{k_i} + Σ_{j<i} α e^{-β a_ij}) - Σ_k μ_k T - Σ_k Σ_j α / β (1 - e^{-β r_j}).
    """

    def __init__(self, data: EventSet, *, shared: bool) -> None:
        self.K, self.shared = data.num_types, shared
        K = self.K
        sequences = [s for s in data if len(s) > 1]
        left: list[list[NDArray[np.float64]]] = [[] for _ in range(K)]
        self.time, self.longest = 0.0, 0.0
        self.follow = np.zeros((K, K))
        for sequence in sequences:
            times, types = sequence.times, sequence.types
            np.add.at(self.follow, (types[1:], types[:-1]), 1)
            for kind in np.unique(types):
                left[kind].append(times[-1] - times[types == kind])
            self.time += times[-1] - times[0]
            self.longest = max(self.longest, times[-1] - times[0])
        self.sums: Sums = (ChainSums if shared else PairSums)(sequences, K)
        self.events = len(self.sums.kinds)
        self.left = [np.concatenate([*x, np.zeros(0)]) for x in left]
        self.counts = np.bincount(self.sums.kinds, minlength=K)

    def split(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """[K], [K, K], and [K, K] or a number."""
        K = self.K
        mu, alpha, beta = np.split(x, [K, K + K * K])
        return mu, alpha.reshape(K, K), beta.reshape(() if self.shared else (K, K))

    def parameters(
        self, x: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """μ, α and β."""
        return self.split(np.exp(x))

    def start(self, beta: float) -> NDArray[np.float64]:
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
        least = np.concatenate(
            [
                np.full(K, 0.5 / self.time),
                np.full(K * K, _LEAST_ALPHA / unit),
                np.full(1 if self.shared else K * K, _LEAST_BETA / self.longest),
            ]
        )
        most = np.full_like(least, _MOST_BETA**2 / unit)
        most[K + K * K :] = _MOST_BETA / unit
        return np.log(np.stack([least, most], 1))

    def __call__(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Value and slope."""
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

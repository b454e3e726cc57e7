"""The synthetic event process of the paper: ten types of events, attending to each other, with decaying influence.

An event e has a time ``e.t``, a type ``e.k``, and ``e.x ~ N(X_k, σ)``, ``e.v ~ N(V_k, σ)``, ``e.d = D_k``. With ê the
last event before t,

    w(e, ê) = (e.t - ê.t) (e.x ê.v - ê.x e.v)
    λ(t)    = softplus(Σ_{e before t} w(e, ê) exp(-(t - e.t) / e.d))
    λ_k(t)  = P(k | ê.k) λ(t)

The first event is at time 0, of any type with equal probability. The paper's ten values of X, V and D are here; what it
leaves open is decided as follows, and can be decided otherwise by an argument:

- **D has a zero** (its second entry), which the formula divides by. With the limit for d to 0 from above, such an event
  has no influence by itself, and still acts as ê through its x and v.
- **P is not printed.** :func:`transition_matrix` draws one in which the most likely next type has probability 0.842
  whatever the last type: the accuracy at which all models but one of the paper's table level off.
- **σ = 0.01** may be a standard deviation or a variance. Taken as the former, as NumPy takes it.
- **The time of the next event.** The paper's algorithm puts it at its expectation, which the likelihood does not
  describe. Here it is drawn from λ exactly, and the true log-likelihood is available.
- **The end.** The first event after ``tmax = 20`` is kept, as in the paper. The log-likelihood up to the last event is
  exact with that rule; without the event pass ``end=tmax`` to it.

The times and types alone do not tell x and v: they are kept as features [L, 2], and the log-likelihood is that of times
and types given them. An event has no weight while it is the last one, and decays by exp(-1.4 / d) before the next one
comes, with d at most 0.5: there is little memory, and λ stays near the log 2 of a Poisson process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.conversion import as_times
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.synthetic.checks import check_count, check_end, numbers, seeded
from contiformer.data.synthetic.point_process import PointProcess, as_edges, check_types
from contiformer.paths.quadrature import gauss_legendre

X = (0.78, 0.11, -1.0, -0.56, -0.78, 1.0, 0.56, -0.33, 0.3, -0.11)
V = (-0.17, 0.5, -0.28, 0.28, 0.17, 0.39, -0.05, 0.05, -0.39, -0.5)
D = (0.5, 0.0, 0.28, 0.17, 0.22, 0.44, 0.33, 0.11, 0.05, 0.39)
T_MAX = 20.0
#: Of the transition matrix.
P_SEED = 2023
#: λ where nothing has an influence: softplus(0).
REST = float(np.log(2.0))

_AT_ONCE = 2_000_000
_MOST_TRIES = 1_000_000
#: Nodes of the rule whose result is compared, and of the finer one whose result is used.
NODES = (12, 20)
MOST_HALVINGS = 40
MOST_PARTS = 1000

_Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _softplus(z: ArrayLike) -> NDArray[np.float64]:
    return np.logaddexp(0.0, z)


def transition_matrix(
    num_types: int = 10, *, likeliest: float = 0.842, seed: int = P_SEED
) -> Float64[np.ndarray, "last next"]:
    """Transition probabilities P[last, next]: one likely next type for each type, and the rest shared at random.

    The likely ones form a single circle through all types, in random order, and have the probability ``likeliest``, at
    least 0.5; the other types share what is left by a flat Dirichlet distribution.
    """
    if num_types < 2 or not 0.5 <= likeliest <= 1:
        problem = f"{num_types} types with a likeliest successor of {likeliest}"
        raise DataError(problem, remedy="pass 2 or more, and 0.5 to 1")
    rng = seeded(seed)
    circle = rng.permutation(num_types)
    P = np.empty((num_types, num_types))
    for last, successor in zip(circle, np.roll(circle, -1), strict=True):
        others = np.arange(num_types) != successor
        P[last, others] = (1 - likeliest) * rng.dirichlet(np.ones(num_types - 1))
        P[last, successor] = likeliest
    return P


class EventProcess(PointProcess):
    """The process of the module's formulas.

    Example:
        >>> from contiformer.data.synthetic import EventProcess
        >>> process = EventProcess()
        >>> sequence = process.simulate(seed=0)
        >>> sequence.features.shape == (len(sequence), 2), bool(sequence.times[-2] <= 20 < sequence.times[-1])
        (True, True)
        >>> process.log_likelihood(sequence) < 0
        True
    """

    def __init__(
        self,
        X: ArrayLike = X,
        V: ArrayLike = V,
        D: ArrayLike = D,
        P: ArrayLike | None = None,
        *,
        spread: float = 0.01,
        tolerance: float = 1e-9,
    ) -> None:
        """Check the parameters.

        Args:
            X, V: [K], the centres of an event's x and v.
            D: [K], decay times, at least 0.
            P: [K, K], P[last, next]; :func:`transition_matrix` where it is not given.
            spread: standard deviation σ of x and v; ``0.01 ** 0.5`` if the paper's 0.01 is read as a variance.
            tolerance: absolute error allowed in one call's integral of λ.
        """
        self.X, self.V, self.D = numbers(X, "X"), numbers(V, "V"), numbers(D, "D")
        self.num_types = K = self.X.size
        if not self.X.shape == self.V.shape == self.D.shape == (K,) or K == 0:
            raise DataError("X, V and D are not of one length", remedy="pass one number of each for each type")
        if (self.D < 0).any() or not 0 <= spread < np.inf or not tolerance > 0:
            raise DataError("D and spread must be finite and not negative, and the tolerance positive")
        self.P = transition_matrix(K) if P is None else numbers(P, "P")
        if self.P.shape != (K, K) or not (self.P >= 0).all() or np.abs(self.P.sum(1) - 1).max() > 1e-9:
            raise DataError(f"P is not a matrix of {K} x {K} probabilities", remedy="make its rows add up to 1")
        self.spread, self.tolerance = spread, tolerance

    def intensity(self, sequence: EventSequence, times: ArrayLike) -> Float64[np.ndarray, "times types"]:
        """[T, K], ``λ_k``. Up to the first event: ``log 2`` in all, the types equally likely."""
        at = as_times(times)
        return self.ground_intensity(sequence, at)[:, None] * self._next_types(sequence, at)

    def ground_intensity(self, sequence: EventSequence, times: ArrayLike) -> Float64[np.ndarray, " times"]:
        """[T], λ, of events of any type."""
        at = as_times(times)
        rows = max(1, _AT_ONCE // max(1, len(sequence)))
        parts = [_softplus(self._influences(sequence, at[i : i + rows]).sum(1)) for i in range(0, len(at), rows)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def compensator(self, sequence: EventSequence, edges: ArrayLike) -> Float64[np.ndarray, "intervals types"]:
        """[n, K], by Gauss–Legendre rules between events, halved until they agree with finer ones."""
        given = as_edges(edges)
        inside = (sequence.times > given[0]) & (sequence.times < given[-1])
        cuts = np.union1d(given, sequence.times[inside])
        ground = integrate(partial(self.ground_intensity, sequence), cuts, tolerance=self.tolerance)
        by_type = ground[:, None] * self._next_types(sequence, cuts[1:])
        total = np.concatenate([np.zeros((1, self.num_types)), by_type.cumsum(0)])
        return np.diff(total[np.searchsorted(cuts, given)], axis=0)

    def simulate(
        self,
        end: float = T_MAX,
        *,
        seed: int = 0,
        overshoot: bool = True,
        most_events: int = 100_000,
        id: str | int | None = None,
    ) -> EventSequence:
        """One sequence from time 0, of its own seed.

        Args:
            end: the paper's ``tmax``.
            overshoot: keep the first event after ``end``, as in the paper.
            most_events: more are refused, so that wild parameters cannot fill the memory.
            id: of the sequence; its seed where not given.
        """
        check_end(end)
        rng = seeded(seed)
        kind = int(rng.integers(self.num_types))
        times, types, features = [0.0], [kind], [self._features(kind, rng)]
        while times[-1] <= end:
            so_far = EventSequence(np.array(times), np.array(types), np.array(features))
            at = self._drawn(so_far, rng)
            if at > end and not overshoot:
                break
            if len(times) >= most_events:
                raise DataError(f"more than {most_events} events until {end}", remedy="shorten the window")
            kind = int(rng.choice(self.num_types, p=self.P[types[-1]]))
            times.append(at)
            types.append(kind)
            features.append(self._features(kind, rng))
        return EventSequence.of(times, types, features=features, id=seed if id is None else id)

    def _drawn(self, sequence: EventSequence, rng: np.random.Generator) -> float:
        """Thinning: no influence grows, so without the negative ones their sum at any time bounds all that follows."""
        now = float(sequence.times[-1])
        for _ in range(_MOST_TRIES):
            bound = float(_softplus(np.maximum(self._influences(sequence, np.array([now]), True), 0).sum()))
            if not np.isfinite(bound):
                break
            now += float(rng.exponential(1 / bound))
            if rng.random() * bound <= self.ground_intensity(sequence, [now])[0]:
                return now
        raise DataError(f"the intensity after {now} is too large to draw from", remedy="make X, V or D smaller")

    def _influences(
        self, sequence: EventSequence, times: NDArray[np.float64], after_all: bool = False
    ) -> NDArray[np.float64]:
        """[T, L], the terms of the sum; 0 for events not before the time. ``after_all``: just after the last event."""
        check_types(sequence, self.num_types)
        if sequence.features is None or sequence.features.shape[1] != 2 or np.isnan(sequence.features).any():
            problem = "the events have no x and v, on which the intensity depends"
            raise DataError(problem, remedy="pass features [L, 2] with x and v, as generated")
        if not len(sequence):
            return np.zeros((len(times), 0))
        x, v = sequence.features.T
        last = np.searchsorted(sequence.times, times, side="right" if after_all else "left") - 1
        weight = (sequence.times - sequence.times[last, None]) * (x * v[last, None] - x[last, None] * v)
        age, decay = times[:, None] - sequence.times, self.D[sequence.types]
        before = (age >= 0 if after_all else age > 0) & (decay > 0)
        return np.where(before, weight * np.exp(-np.maximum(age, 0) / np.where(decay > 0, decay, 1)), 0)

    def _next_types(self, sequence: EventSequence, times: NDArray[np.float64]) -> NDArray[np.float64]:
        last = np.searchsorted(sequence.times, times) - 1
        if not len(sequence):
            return np.full((len(times), self.num_types), 1 / self.num_types)
        return np.where(last[:, None] >= 0, self.P[sequence.types[last]], 1 / self.num_types)

    def _features(self, kind: int, rng: np.random.Generator) -> tuple[float, float]:
        x, v = rng.normal((self.X[kind], self.V[kind]), self.spread)
        return float(x), float(v)


def event_process_set(
    n: int = 500, *, seed: int = 0, end: float = T_MAX, process: EventProcess | None = None, overshoot: bool = True
) -> EventSet:
    """The paper's data set: a sequence for each seed from ``n * seed`` to ``n * seed + n - 1``, by default 0 to 499."""
    check_count(n)
    made_by = process or EventProcess()
    sequences = [made_by.simulate(end, seed=s, overshoot=overshoot) for s in range(n * seed, n * (seed + 1))]
    return EventSet(sequences, num_types=made_by.num_types)


def integrate(
    function: _Function, edges: Float64[np.ndarray, " edges"], *, tolerance: float
) -> Float64[np.ndarray, " edges-1"]:
    """The integral of ``function`` between each edge and the next.

    Each interval gets two Gauss–Legendre rules and is halved where they differ by more than its share of the tolerance,
    which is absolute and for all intervals together; differences of rounding size are accepted in any case. The finer
    rule's result is returned. The function takes and gives [m] float64, and is evaluated
    strictly inside the intervals. Edges never decrease.
    """
    left, right = edges[:-1], edges[1:]
    owner = np.arange(len(left))
    result = np.zeros(len(left))
    span = float(edges[-1] - edges[0]) if len(edges) else 0.0
    for _ in range(MOST_HALVINGS):
        if not len(left):
            return result
        coarse, fine = (_apply(function, left, right, count) for count in NODES)
        allowed = tolerance * (right - left) / (span or 1.0) + 1e-14 * np.abs(fine)
        good = np.abs(fine - coarse) <= allowed
        np.add.at(result, owner[good], fine[good])
        bad, middle = ~good, (left + right) / 2
        left, right = np.concatenate([left[bad], middle[bad]]), np.concatenate([middle[bad], right[bad]])
        owner = np.tile(owner[bad], 2)
        if len(left) > MOST_PARTS * len(result):
            break
    problem = f"an integral does not settle to {tolerance:g} near {float(left[0]):g}"
    raise DataError(problem, remedy="check the parameters, or pass a larger tolerance")


def _apply(
    function: _Function, left: NDArray[np.float64], right: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    nodes, weights = gauss_legendre(count)
    width = right - left
    at = left[:, None] + width[:, None] * nodes
    return np.asarray(width * (function(at.ravel()).reshape(at.shape) @ weights))

"""What earlier events add to the intensity at each event: over all pairs, or by a recursion where decays are equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float64, Int
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence

#: Pairs of events in one sequence, at most (16 bytes each).
_MOST_PAIRS = 200_000_000


class EventTerm(NamedTuple):
    """``Σ_i log λ(t_i)`` in parts: the rate at each event, and the slope of the sum in the logarithms of α and β."""

    rate: Float64[np.ndarray, " events"]
    by_alpha: Float64[np.ndarray, "types types"]
    by_beta: Float64[np.ndarray, "types types"] | float


class Sums(Protocol):
    """Scored events and what came before them.

    Attributes:
        kinds: the type of each event but the first of a sequence, in an order of its own.
        seen: whether type j ever came before type k in a sequence, [k, j].
    """

    kinds: Int[np.ndarray, " events"]
    seen: Bool[np.ndarray, "types types"]

    def __call__(self, mu: NDArray[np.float64], alpha: NDArray[np.float64], beta: NDArray[np.float64]) -> EventTerm:
        """At these parameters."""
        ...


class PairSums:
    """Over all pairs of events of a sequence, each pair of types with its own decay: time and memory are quadratic."""

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

    def __call__(self, mu: NDArray[np.float64], alpha: NDArray[np.float64], beta: NDArray[np.float64]) -> EventTerm:
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
    are ``e^{-β d} R`` and ``e^{-β d} (S + d R)``. All sequences go step by step together, the longest first.
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

    def __call__(self, mu: NDArray[np.float64], alpha: NDArray[np.float64], beta: NDArray[np.float64]) -> EventTerm:
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

    def _earlier(self, decay: float) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
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

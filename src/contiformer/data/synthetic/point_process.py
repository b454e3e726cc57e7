"""What every point process with a known intensity can do: true log-likelihood and residuals of a sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence
from contiformer.data.times import as_times


class PointProcess(ABC):
    """A marked point process given by its intensities ``λ_k(t)``, k = 0..K-1, which depend on the events before t.

    "Before" is strict: ``λ_k`` at the time of an event does not see that event, nor others at the same time.
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

        By default the first event is given and not scored: the sum runs over the second to the last event and the
        integral from the first to the last, as for the models. With ``start``, everything up to it is given, the sum
        runs over ``start < t_j`` and the integral begins there; with ``end``, both stop there. A sequence that was
        observed from 0 to T has its full likelihood with ``start=0, end=T``.

        Returns:
            A number; 0 where nothing is scored; -inf for an event that cannot happen.
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
        raise DataError(
            f"an event of type {int(sequence.types.max())} in a process of {num_types} types",
            remedy="types count from 0",
        )


def as_edges(edges: ArrayLike) -> NDArray[np.float64]:
    """Finite, none before the one in front of it."""
    array = as_times(edges, "edges")
    if (np.diff(array) < 0).any():
        raise DataError("the edges of the intervals are not in order", remedy="sort them")
    return array

"""Integrals to a given accuracy: Gauss–Legendre rules that check themselves against a finer one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from contiformer.data.errors import DataError

#: Nodes of the rule whose result is compared, and of the finer one whose result is used.
NODES = (12, 20)
MOST_HALVINGS = 40
#: For each interval given, of its parts that are still to be integrated at any time.
MOST_PARTS = 1000


def integrate(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    edges: Float64[np.ndarray, " n+1"],
    *,
    tolerance: float = 1e-10,
    nodes: tuple[int, int] = NODES,
) -> Float64[np.ndarray, " n"]:
    """The integral of ``function`` between each edge and the next.

    Each interval gets both rules of ``nodes``; where they differ by more than the tolerance (of all intervals together;
    each has a part in proportion to its width) it is halved. The finer rule's result is the one returned, so the true
    error is far smaller than the tolerance. The function is evaluated strictly inside the intervals.

    Args:
        function: takes and gives [m] float64.
        edges: never decreasing; equal ones enclose an integral of 0.
        tolerance: absolute; differences of rounding size, relative to the result, are accepted in any case.
        nodes: sizes of the two rules.

    Example:
        >>> integrate(np.exp, np.array([0.0, 1.0, 2.0])).round(8).tolist()
        [1.71828183, 4.67077427]
    """
    left, right = edges[:-1], edges[1:]
    owner = np.arange(len(left))
    result = np.zeros(len(left))
    span = float(edges[-1] - edges[0]) if len(edges) else 0.0
    for _ in range(MOST_HALVINGS):
        if not len(left):
            return result
        coarse, fine = (_apply(function, left, right, count) for count in nodes)
        allowed = tolerance * (right - left) / (span or 1.0) + 1e-14 * np.abs(fine)
        good = np.abs(fine - coarse) <= allowed
        np.add.at(result, owner[good], fine[good])
        bad, middle = ~good, (left + right) / 2
        left, right = np.concatenate([left[bad], middle[bad]]), np.concatenate([middle[bad], right[bad]])
        owner = np.tile(owner[bad], 2)
        if len(left) > MOST_PARTS * len(result):
            break
    raise DataError(
        f"an integral does not settle to {tolerance:g} near {float(left[0]):g}",
        remedy="check the parameters, or pass a larger tolerance",
    )


def _apply(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    count: int,
) -> NDArray[np.float64]:
    nodes, weights = _rule(count)
    half = (right - left) / 2
    at = left[:, None] + half[:, None] * (1 + nodes)
    result: NDArray[np.float64] = half * (function(at.ravel()).reshape(at.shape) @ weights)
    return result


@cache
def _rule(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights

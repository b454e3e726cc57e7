"""Gauss–Legendre quadrature."""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float64
from numpy.polynomial import legendre


def gauss_legendre(points: int) -> tuple[Float64[np.ndarray, " points"], Float64[np.ndarray, " points"]]:
    """Nodes in [0, 1] and weights that sum to 1: exact means of polynomials up to degree ``2 * points - 1``.

    Example:
        >>> from contiformer.paths.quadrature import gauss_legendre
        >>> nodes, weights = gauss_legendre(2)
        >>> round(float(weights @ nodes**3), 6)
        0.25
    """
    return _gauss_legendre(points)


@cache
def _gauss_legendre(points: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = legendre.leggauss(points)
    return (nodes + 1) / 2, weights / 2


@cache
def running_integrals(points: int) -> Float64[np.ndarray, "points points"]:
    """The matrix from values at the nodes of :func:`gauss_legendre` to integrals from 0 up to each node.

    Row i integrates the polynomial through all values up to node i.

    Example:
        >>> import numpy as np
        >>> from contiformer.paths.quadrature import gauss_legendre, running_integrals
        >>> nodes, _ = gauss_legendre(3)
        >>> bool(np.allclose(running_integrals(3) @ nodes, nodes**2 / 2))
        True
    """
    nodes, _ = legendre.leggauss(points)
    powers = legendre.legvander(nodes, points - 1)
    upto = np.stack([legendre.legval(nodes, legendre.legint(row, lbnd=-1)) for row in np.eye(points)], 1)
    return (upto @ np.linalg.inv(powers)) / 2

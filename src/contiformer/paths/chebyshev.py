"""Chebyshev series: bases, Hermite data to coefficients, and running means.

A series of ``M`` coefficients is ``k(x) = Σ_{m<M} c_m T_m(x)`` on ``x`` in [-1, 1].
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import chebyshev as series
from torch import Tensor

from contiformer.paths.tables import table


def chebyshev_basis(x: Float[Tensor, "*shape"], count: int) -> Float[Tensor, "*shape count"]:
    """``T_0(x) .. T_{count-1}(x)`` along a new last dimension, by ``T_{m+1} = 2 x T_m - T_{m-1}``.

    Example:
        >>> import torch
        >>> from contiformer.paths.chebyshev import chebyshev_basis
        >>> chebyshev_basis(torch.tensor([0.5]), 4).tolist()
        [[1.0, 0.5, -0.5, -1.0]]
    """
    terms = [torch.ones_like(x), x]
    twice = 2 * x
    while len(terms) < count:
        terms.append(twice * terms[-1] - terms[-2])
    return torch.stack(terms[:count], dim=-1)


def hermite_nodes(count: int) -> np.ndarray:
    """``count >= 2`` nodes from -1 to 1, halfway between Chebyshev-Lobatto and uniform.

    With a value and a derivative at each node, these nodes gave the smallest errors of those tried.
    """
    position = np.arange(count) / (count - 1)
    return (2 * position - 1 - np.cos(np.pi * position)) / 2


def hermite_to_chebyshev(count: int) -> np.ndarray:
    """Matrix [2 count, 2 count] that takes values and then x-derivatives at the Hermite nodes to coefficients."""
    nodes, terms = hermite_nodes(count), 2 * count
    values = series.chebvander(nodes, terms - 1)
    slopes = np.stack([series.chebval(nodes, series.chebder(row)) for row in np.eye(terms)], axis=1)
    return np.linalg.inv(np.concatenate([values, slopes]))


def running_mean_matrix(anchor: Float[Tensor, "*shape"], terms: int) -> Float[Tensor, "*shape terms terms"]:
    """Matrix ``Φ(a)`` that takes the coefficients of a series to those of its mean from ``a`` to ``x``.

    ``Σ_q (Φ d)_q T_q(x) = 1/(x - a) ∫_a^x Σ_m d_m T_m``: the mean of a polynomial is a polynomial in both ends, so the
    matrix is one product of the basis at ``a`` with a constant array. Nothing is divided by ``x - a``, so ``x = a``
    needs no care.

    Example:
        >>> import torch
        >>> from contiformer.paths.chebyshev import running_mean_matrix
        >>> mean = running_mean_matrix(torch.tensor(0.0), 2) @ torch.tensor([0.0, 1.0])  # of x, from 0 to x
        >>> mean.tolist()
        [0.0, 0.5]
    """
    constant = table(_mean_of_products, terms, anchor)
    return (chebyshev_basis(anchor, terms) @ constant.flatten(1)).unflatten(-1, (terms, terms))


def _mean_of_products(terms: int) -> np.ndarray:
    """``X[r, q, m]`` with the mean of ``T_m`` from a to x equal to ``Σ X[r, q, m] T_r(a) T_q(x)``."""
    nodes = series.chebpts1(terms)
    at_nodes = np.stack([_running_mean(np.eye(terms), a) for a in nodes])
    # values at Chebyshev points to coefficients: exact, since the dependence on a has degree terms - 1 too
    return np.tensordot(np.linalg.inv(series.chebvander(nodes, terms - 1)), at_nodes, axes=1)


def _running_mean(coefficients: np.ndarray, anchor: float) -> np.ndarray:
    """Coefficients [terms, ...] of the mean from ``anchor`` to x of series with the given coefficients.

    With the coefficients of the primitive, ``p_1 = d_0 - d_2/2`` and ``p_n = (d_{n-1} - d_{n+1}) / (2n)``, the
    division by ``x - a`` is the downward recurrence ``b_n = p_n + 2 a b_{n+1} - b_{n+2}``, and ``g_0 = b_1``, ``g_q =
    2 b_{q+1}``.
    """
    terms = len(coefficients)
    d = np.concatenate([coefficients, np.zeros_like(coefficients[:2])])
    b_next = b_after = np.zeros_like(d[0])
    means = []
    for n in range(terms, 0, -1):
        primitive = d[0] - d[2] / 2 if n == 1 else (d[n - 1] - d[n + 1]) / (2 * n)
        b_next, b_after = primitive + 2 * anchor * b_next - b_after, b_next
        means.append(b_next if n == 1 else 2 * b_next)
    return np.stack(means[::-1])

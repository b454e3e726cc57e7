"""Chebyshev series: bases, Hermite data to coefficients, and running means.

A series of ``M`` coefficients is ``k(x) = Σ_{m<M} c_m T_m(x)`` on ``x`` in [-1, 1].
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def chebyshev_basis(x: Float[Tensor, "*shape"], count: int) -> Float[Tensor, "*shape count"]:
    """``T_0(x) .. T_{count-1}(x)`` along a new last dimension, by ``T_{m+1} = 2 x T_m - T_{m-1}``.

    Example:
        >>> chebyshev_basis(torch.tensor([0.5]), 4).tolist()
        [[1.0, 0.5, -0.5, -1.0]]
    """
    terms = [torch.ones_like(x), x]
    twice = 2 * x
    while len(terms) < count:
        terms.append(twice * terms[-1] - terms[-2])
    return torch.stack(terms[:count], dim=-1)


@cache
def gauss_legendre(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [0, 1] and weights that sum to 1: exact means of polynomials up to degree ``2 * points - 1``."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return (nodes + 1) / 2, weights / 2


@cache
def hermite_nodes(count: int) -> np.ndarray:
    """``count >= 2`` nodes from -1 to 1, halfway between Chebyshev-Lobatto and uniform.

    With a value and a derivative at each node, these nodes gave the smallest errors of those tried.
    """
    position = np.arange(count) / (count - 1)
    return (2 * position - 1 - np.cos(np.pi * position)) / 2


@cache
def hermite_to_chebyshev(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices [2 count, count] that take values and x-derivatives at the Hermite nodes to Chebyshev coefficients."""
    nodes, terms = hermite_nodes(count), 2 * count
    values = np.polynomial.chebyshev.chebvander(nodes, terms - 1)
    slopes = np.stack(
        [np.polynomial.chebyshev.chebval(nodes, np.polynomial.chebyshev.chebder(row)) for row in np.eye(terms)], axis=1
    )
    inverse = np.linalg.inv(np.concatenate([values, slopes]))
    return inverse[:, :count], inverse[:, count:]


def running_mean(
    coefficients: Float[Tensor, "terms *shape"], anchor: Float[Tensor, "*anchor_shape"]
) -> Float[Tensor, "terms *shape"]:
    """Coefficients ``g`` of the mean from ``anchor`` to ``x`` of the series ``d``, itself a series in ``x``.

    ``Σ_q g_q T_q(x) = 1/(x - a) ∫_a^x Σ_m d_m T_m``. With the coefficients of the primitive,
    ``p_1 = d_0 - d_2/2`` and ``p_n = (d_{n-1} - d_{n+1}) / (2n)``, the division by ``x - a`` is the downward recurrence
    ``b_n = p_n + 2 a b_{n+1} - b_{n+2}``, and ``g_0 = b_1``, ``g_q = 2 b_{q+1}``. Nothing is divided by ``x - a``, so
    ``x = a`` needs no care.

    ``anchor`` broadcasts against one coefficient, that is against ``shape``.
    """
    terms = coefficients.shape[0]
    twice = 2 * anchor
    d = coefficients.unbind(0)
    zero = torch.zeros_like(d[0])
    b_next, b_after = zero, zero
    means: list[Tensor] = []
    for n in range(terms, 0, -1):
        higher = d[n + 1] if n + 1 < terms else None
        if n == 1:
            primitive = d[0] - higher / 2 if higher is not None else d[0]
        else:
            primitive = (d[n - 1] - higher if higher is not None else d[n - 1]) / (2 * n)
        b_next, b_after = primitive + twice * b_next - b_after, b_next
        means.append(b_next if n == 1 else 2 * b_next)
    return torch.stack(means[::-1])

"""Chebyshev series: basis, Hermite nodes, integrals."""

import numpy as np
import pytest
import torch
from numpy.polynomial import Polynomial, chebyshev

from contiformer.paths.chebyshev import chebyshev_basis, hermite_nodes, hermite_to_chebyshev, running_mean_matrix
from contiformer.paths.quadrature import gauss_legendre

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_basis_is_numpys(count):
    x = RNG.uniform(-1, 1, (3, 5))
    np.testing.assert_allclose(chebyshev_basis(torch.tensor(x), count), chebyshev.chebvander(x, count - 1), atol=1e-13)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
def test_hermite_nodes_run_in_order_from_end_to_end_and_are_symmetric(count):
    nodes = hermite_nodes(count)
    assert nodes[0] == -1
    assert nodes[-1] == 1
    assert (np.diff(nodes) > 0).all()
    np.testing.assert_allclose(nodes, -nodes[::-1], atol=1e-15)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 16])
def test_values_and_slopes_at_the_nodes_give_back_the_polynomial(count):
    coefficients = RNG.normal(size=2 * count)
    nodes = hermite_nodes(count)
    data = np.concatenate(
        [chebyshev.chebval(nodes, coefficients), chebyshev.chebval(nodes, chebyshev.chebder(coefficients))]
    )
    np.testing.assert_allclose(hermite_to_chebyshev(count) @ data, coefficients, atol=1e-9)


def test_a_polynomial_of_higher_degree_is_not_reproduced():
    count = 3
    coefficients = np.eye(2 * count + 1)[-1]
    nodes = hermite_nodes(count)
    data = np.concatenate(
        [chebyshev.chebval(nodes, coefficients), chebyshev.chebval(nodes, chebyshev.chebder(coefficients))]
    )
    found = hermite_to_chebyshev(count) @ data
    x = np.linspace(-1, 1, 50)
    assert np.abs(chebyshev.chebval(x, found) - chebyshev.chebval(x, coefficients)).max() > 0.1


@pytest.mark.parametrize("terms", [2, 5, 8, 16, 32])
@pytest.mark.parametrize("anchor", [-1.0, -0.3, 0.0, 0.77, 1.0])
def test_running_mean_is_the_integral_divided_by_the_length(terms, anchor):
    coefficients = RNG.normal(size=terms)
    mean = (running_mean_matrix(torch.tensor(anchor, dtype=torch.float64), terms) @ torch.tensor(coefficients)).numpy()
    x = np.array([-1.0, -0.9, -0.2, 0.1, 0.5, 1.0])
    x = x[np.abs(x - anchor) > 0.05]
    primitive = chebyshev.chebint(coefficients, lbnd=anchor)
    np.testing.assert_allclose(
        chebyshev.chebval(x, mean), chebyshev.chebval(x, primitive) / (x - anchor), atol=1e-11 * terms
    )


@pytest.mark.parametrize("terms", [2, 5, 16, 32])
def test_mean_over_no_length_is_the_value_itself(terms):
    anchors = torch.tensor([-1.0, -0.4, 0.0, 0.9, 1.0], dtype=torch.float64)
    coefficients = torch.tensor(RNG.normal(size=terms))
    means = running_mean_matrix(anchors, terms) @ coefficients
    at_anchor = (chebyshev_basis(anchors, terms) * means).sum(-1)
    np.testing.assert_allclose(at_anchor, chebyshev.chebval(anchors.numpy(), coefficients.numpy()), atol=1e-11)


@pytest.mark.parametrize("points", range(1, 9))
def test_gauss_legendre_is_exact_up_to_degree_2n_minus_1_and_no_further(points):
    nodes, weights = gauss_legendre(points)
    assert weights.sum() == pytest.approx(1)
    exact = Polynomial(RNG.normal(size=2 * points))
    assert weights @ exact(nodes) == pytest.approx(exact.integ()(1.0), abs=1e-13)
    beyond = Polynomial.fromroots(nodes) ** 2
    assert weights @ beyond(nodes) == pytest.approx(0, abs=1e-13)
    assert beyond.integ()(1.0) > 1e-10

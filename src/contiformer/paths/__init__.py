"""Curves in time: interpolants, Chebyshev series and ODE trajectories."""

from contiformer.paths.interpolation import PiecewisePolynomial, interpolate

__all__ = ["PiecewisePolynomial", "interpolate"]

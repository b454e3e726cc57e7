"""Curves in time: interpolants, Chebyshev series and ODE trajectories."""

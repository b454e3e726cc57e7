"""Data that is made, not measured: the truth is known everywhere."""

from contiformer.data.synthetic.spirals import Spirals, archimedean, generate_spirals, hyperbolic

__all__ = ["Spirals", "archimedean", "generate_spirals", "hyperbolic"]

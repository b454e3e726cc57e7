"""Kernels in C, where the installation could compile them.

Nothing depends on them: ``made_for`` says whether they are there and take a tensor, and ``contiformer.nn`` and
``contiformer.backbones`` do the same in PyTorch where they do not. Set ``CONTIFORMER_NATIVE=0`` to do without.
"""

from contiformer.native.library import made_for

__all__ = ["made_for"]

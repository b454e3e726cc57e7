"""Kernels in C, where the installation could compile them.

Nothing depends on them: ``usable`` says whether they are there, and ``contiformer.nn`` and ``contiformer.backbones`` do
the same in PyTorch where they are not. Set ``CONTIFORMER_NATIVE=0`` to do without.
"""

from contiformer.native.library import usable

__all__ = ["usable"]

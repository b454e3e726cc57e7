"""Kernels in C, where the installation could compile them.

Nothing depends on them: ``made_for`` says whether they are there, are on, and take a tensor, and ``contiformer.nn`` and
``contiformer.backbones`` do the same in PyTorch where they do not. ``use_kernels`` switches them off.
"""

from contiformer.native.library import made_for, use_kernels

__all__ = ["made_for", "use_kernels"]

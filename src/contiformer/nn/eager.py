"""Functions that ``torch.compile`` leaves alone, without importing the compiler (a second) where nobody compiles."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def run_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """``torch.compiler.disable``, applied at the first call after the compiler has been imported.

    Example:
        >>> from contiformer.nn.eager import run_eagerly
        >>> run_eagerly(abs)(-1)
        1
    """
    disabled: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    # the compiler breaks the graph before a call of a function that is marked so
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call

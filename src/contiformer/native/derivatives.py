"""Backward passes that are written by hand, and what they do not give."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that refuses to be differentiated itself.

    ``torch.autograd.function.once_differentiable`` refuses too late: ``torch.autograd.grad`` of a gradient with respect
    to given inputs never comes by its error, and leaves the terms that went through this pass out without a word.
    """

    @wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        # autograd computes gradients with gradients on only where they are to be differentiated again
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives are not available here, because this backward pass is written by hand: take first "
                "derivatives (create_graph=False), or finite differences of them"
            )
        return backward(ctx, *gradients)

    return checked

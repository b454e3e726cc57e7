"""Handwritten backward passes, and errors for the derivatives that they lack."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that refuses to be differentiated itself, and to take several gradients in one.

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
        if any(isinstance(g, torch.Tensor) and _many(g) for g in gradients):
            raise RuntimeError(
                "gradients in several directions at once are not available here, because this backward pass is written "
                "by hand: take them one by one (is_grads_batched=False, vectorize=False)"
            )
        return backward(ctx, *gradients)

    return checked


def _many(gradient: torch.Tensor) -> bool:
    """Whether this is a batch of gradients in the guise of one."""
    return torch._C._functorch.is_batchedtensor(gradient) or torch._C._functorch.is_legacy_batchedtensor(gradient)


def saved(ctx: Any) -> list[Any]:
    """The saved tensors, contiguous as they were saved: hooks on them may have laid them out anew."""
    return [tensor if tensor is None else tensor.contiguous() for tensor in ctx.saved_tensors]

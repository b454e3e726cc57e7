"""Comparison of outputs and gradients."""

import torch


def with_gradients(name, result, tensors, direction):
    """The result by its name, and its gradients in a direction by the names of those tensors that need one."""
    learned = {key: tensor for key, tensor in tensors.items() if tensor.requires_grad}
    found = torch.autograd.grad(result, list(learned.values()), direction, allow_unused=True)
    return {name: result.detach(), **dict(zip(learned, found, strict=True))}

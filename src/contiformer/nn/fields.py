"""Vector fields ``f(t, x)`` of the key and value trajectories."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal, TypeGuard, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.native.dispatch import unhooked
from contiformer.nn.fused_sweep import SigmoidField
from contiformer.paths.trajectories import StackedField

FieldName = Literal["concat", "concatnorm", "linear"]
Activation = Literal["tanh", "sigmoid"]
FIELDS: tuple[str, ...] = get_args(FieldName)
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


def _column(t: float | Tensor, x: Tensor) -> Tensor:
    """Time as a tensor that broadcasts against ``x``: a number, one time for each row of x, or already a column."""
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    if t.dim() == 0 or (t.dim() == x.dim() and t.shape[-1] == 1):
        return t
    return t.unsqueeze(-1)


class ConcatField(nn.Module):
    """The paper's field: ``f(t, x) = act(norm(W₂ (W₁ x + b₁ + w t + b) + b₂))``.

    ``norm`` is a LayerNorm ("ConcatNorm", the default of the paper) or nothing ("Concat"). There is no activation
    between the two linear maps, so together they are one affine map of ``(x, t)``, which is how the solver
    uses them; the parameters stay those of the paper.

    Shapes: t a number, [...] or [..., 1]; x [..., d] -> [..., d].

    Example:
        >>> import torch
        >>> from contiformer.nn import ConcatField
        >>> ConcatField(8)(0.5, torch.zeros(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, d_model: int, *, normalize: bool = True, activation: Activation = "tanh") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
        self.activation = activation
        self.inner = nn.Linear(d_model, d_model)
        self.time = nn.Linear(1, d_model)
        self.outer = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model) if normalize else None

    def forward(self, t: float | Tensor, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """The derivative at time ``t`` and state ``x``."""
        column = _column(t, x)
        z = self.outer(self.inner(x) + column * self.time.weight.squeeze(-1) + self.time.bias)
        if self.norm is not None:
            z = self.norm(z)
        return z.tanh() if self.activation == "tanh" else z.sigmoid()


class LinearField(nn.Module):
    """``f(t, x) = A x``: trajectories are matrix exponentials, ``k_i(t) = exp(A (t - t_i)) K_i``."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, d_model))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, t: float | Tensor, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """The derivative at state ``x``; ``t`` does not enter."""
        return nn.functional.linear(x, self.weight)


def make_field(field: FieldName | nn.Module, d_model: int, activation: Activation) -> nn.Module:
    """A field by name, or a copy of a module ``f(t, x)`` with t [..., 1] and x [..., d]."""
    if isinstance(field, nn.Module):
        return copy.deepcopy(field)
    if field not in FIELDS:
        raise ValueError(f"field must be one of {FIELDS} or an nn.Module f(t, x), got {field!r}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    if field == "linear":
        return LinearField(d_model)
    return ConcatField(d_model, normalize=field == "concatnorm", activation=activation)


def stack_fields(fields: Sequence[nn.Module], dtype: torch.dtype) -> StackedField:
    """One callable ``(t [n, B, 1], x [S, n, B, d]) -> [S, n, B, d]`` for the S fields.

    Equal fields of the paper's form are evaluated together, as one batched product with the fused affine maps.
    """
    concat = [f for f in fields if is_plain(f)]
    if len(concat) == len(fields) and len({(f.activation, f.norm is None) for f in concat}) == 1:
        return fuse(concat, dtype)
    return lambda t, x: torch.stack([f(t, state) for f, state in zip(fields, x, strict=True)])


def is_plain(field: nn.Module) -> TypeGuard[ConcatField]:
    """Whether a call of the field is its formula and nothing else: no subclass, no other layers in it, no hooks."""
    if type(field) is not ConcatField:
        return False
    layers, norm = (field.inner, field.time, field.outer), field.norm
    if any(type(layer) is not nn.Linear or layer.bias is None for layer in layers):
        return False
    if norm is None:
        return unhooked(field, *layers)
    whole = type(norm) is nn.LayerNorm and norm.weight is not None and norm.bias is not None
    return whole and unhooked(field, *layers, norm)


def fuse(fields: Sequence[ConcatField], dtype: torch.dtype) -> SigmoidField:
    """Several plain fields of one kind as one batched affine map, norm and sigmoid."""
    width = fields[0].outer.weight.shape[0]
    outer = torch.stack([f.outer.weight for f in fields])
    last = torch.stack([f.outer.bias for f in fields])
    # columns of the inner map: of the state, of time, and the constant
    inner = [torch.cat([f.inner.weight, f.time.weight, (f.inner.bias + f.time.bias)[:, None]], 1) for f in fields]
    # tanh(z) = 2 σ(2z) - 1
    amplitude, offset, stretch = (2.0, -1.0, 2.0) if fields[0].activation == "tanh" else (1.0, 0.0, 1.0)
    norms = [f.norm for f in fields if f.norm is not None]
    gain = shift = floor = None
    if norms:
        # LayerNorm removes the mean over channels: remove it from the map once instead of from every state
        outer, last = outer - outer.mean(1, keepdim=True), last - last.mean(1, keepdim=True)
        gain = torch.stack([n.weight for n in norms]).to(dtype).unsqueeze(1) * (stretch * width**0.5)
        shift = torch.stack([n.bias for n in norms]).to(dtype).unsqueeze(1) * stretch
        floor = (width * norms[0].eps) ** 0.5
    else:
        outer, last = outer * stretch, last * stretch
    # one by one: a batched product of two small matrices wakes threads that take longer than the product
    fused = torch.stack([a @ b for a, b in zip(outer.unbind(), inner, strict=True)]).to(dtype).mT
    bias = fused[:, width + 1 :] + last.to(dtype).unsqueeze(1)
    matrix, slope = fused[:, :width].contiguous(), fused[:, width : width + 1]
    return SigmoidField(matrix, slope, bias, gain, shift, floor, amplitude, offset)

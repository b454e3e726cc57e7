"""Vector fields ``f(t, x)`` of the key and value trajectories."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from contiformer.native.dispatch import unhooked
from contiformer.paths.trajectories import StackedField

FieldName = Literal["concat", "concatnorm", "headwise", "linear"]
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


class HeadwiseField(nn.Module):
    """The paper's field for each head by itself: H maps of ``d/H`` channels, H times less work than one of d.

    Shapes: t a number, [...] or [..., 1]; x [..., d] -> [..., d].

    Example:
        >>> import torch
        >>> from contiformer.nn.fields import HeadwiseField
        >>> HeadwiseField(8, 2)(0.5, torch.zeros(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, d_model: int, n_heads: int, *, activation: Activation = "tanh") -> None:
        super().__init__()
        self.heads = nn.ModuleList(ConcatField(d_model // n_heads, activation=activation) for _ in range(n_heads))

    def forward(self, t: float | Tensor, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """The derivative at time ``t`` and state ``x``."""
        column = _column(t, x)
        parts = x.unflatten(-1, (len(self.heads), -1)).unbind(-2)
        return torch.cat([head(column, part) for head, part in zip(self.heads, parts, strict=True)], -1)


class LinearField(nn.Module):
    """The linear field ``f(t, x) = A x``; trajectories are matrix exponentials, ``k_i(t) = exp(A (t - t_i)) K_i``.

    Example:
        >>> import torch
        >>> from contiformer.nn import LinearField
        >>> LinearField(8)(0.5, torch.zeros(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, d_model))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, t: float | Tensor, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """The derivative at state ``x``; ``t`` does not enter."""
        return nn.functional.linear(x, self.weight)


def make_field(field: FieldName | nn.Module, d_model: int, activation: Activation, n_heads: int = 1) -> nn.Module:
    """A field by name, or a copy of a module ``f(t, x)`` with t [..., 1] and x [..., d]."""
    if isinstance(field, nn.Module):
        return copy.deepcopy(field)
    if field not in FIELDS:
        raise ValueError(f"field must be one of {FIELDS} or an nn.Module f(t, x), got {field!r}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    if field == "linear":
        return LinearField(d_model)
    if field == "headwise":
        return HeadwiseField(d_model, n_heads, activation=activation)
    return ConcatField(d_model, normalize=field == "concatnorm", activation=activation)


@dataclass(frozen=True)
class FusedField:
    """Several of the paper's fields as one batched map: ``f(t, x) = act(gain ∘ n + shift)``.

    The norm is ``n = z / √(mean(z²) + ε)`` with ``z = x @ matrix + slope t + bias``, where matrix, slope and bias are
    centred over channels, which makes this LayerNorm. Without a norm, ``norm`` and ``eps`` are None and the argument is
    ``z``.

    Shapes: affine [F, c + 2, c], the rows of matrix, slope and bias; norm [2, F, 1, c], gain and shift. There are as
    many fields F as states, or a multiple: then each of them has its part of a state's channels.
    """

    affine: Tensor
    norm: Tensor | None
    eps: float | None
    activation: Activation

    def __call__(self, t: Tensor, x: Float[Tensor, "states *rows d"]) -> Float[Tensor, "states *rows d"]:
        """Derivatives at t [..., 1] and x [S, ..., d]."""
        states, width = x.shape[0], self.affine.shape[-1]
        parts = self.affine.shape[0] // states
        rows = x.reshape(states, -1, parts * width)
        if parts > 1:
            rows = rows.unflatten(2, (parts, width)).transpose(1, 2).flatten(0, 1)
        matrix, slope, bias = self.affine.split([width, 1, 1], 1)
        z = torch.baddbmm(torch.addcmul(bias, slope, t.reshape(1, -1, 1)), rows, matrix)
        if self.norm is not None:
            assert self.eps is not None
            z = torch.addcmul(self.norm[1], z * (z.square().mean(-1, keepdim=True) + self.eps).rsqrt(), self.norm[0])
        slopes = z.tanh() if self.activation == "tanh" else z.sigmoid()
        if parts > 1:
            slopes = slopes.unflatten(0, (states, parts)).transpose(1, 2)
        return slopes.reshape(x.shape)


def stack_fields(fields: Sequence[nn.Module], dtype: torch.dtype) -> StackedField:
    """One callable ``(t [..., 1], x [S, ..., d]) -> [S, ..., d]`` for the S fields.

    Equal fields of the paper's form are evaluated together, as one batched product with the fused affine maps.
    """
    parts = [list(f.heads) if type(f) is HeadwiseField and unhooked(f, f.heads) else [f] for f in fields]
    flat = [f for part in parts for f in part if type(f) is ConcatField]
    plain = [found for found in map(plain_parameters, flat) if found is not None]
    kinds = {(f.activation, getattr(f.norm, "eps", None)) for f in flat}
    if len({len(part) for part in parts}) == len(kinds) == 1 and len(plain) == sum(map(len, parts)):
        return fuse(plain, *kinds.pop(), dtype)
    return lambda t, x: torch.stack([f(t, state) for f, state in zip(fields, x.unbind(), strict=True)])


def plain_parameters(field: ConcatField) -> list[Tensor] | None:
    """Weight and bias of each layer, or None unless a call of the field is its formula and nothing else.

    That is no other layers in it, no hooks.
    """
    layers = [field.inner, field.time, field.outer, *([] if field.norm is None else [field.norm])]
    found: list[Tensor] = []
    for layer, kind in zip(layers, (nn.Linear, nn.Linear, nn.Linear, nn.LayerNorm)):
        # without the search for attributes, which takes longer than the sums
        own = layer.__dict__.get("_parameters", {})
        weight, bias = own.get("weight"), own.get("bias")
        if type(layer) is not kind or weight is None or bias is None:
            return None
        found += (weight, bias)
    return found if unhooked(field, *layers) else None


def fuse(plain: Sequence[list[Tensor]], activation: Activation, eps: float | None, dtype: torch.dtype) -> FusedField:
    """Several plain fields of one kind as one batched affine map, norm and activation."""
    width, columns = plain[0][0].shape[0], []
    for inner, inner_bias, time, time_bias, *_ in plain:
        # columns of the inner map: of the state, of time, and the constant
        columns += [inner, time, (inner_bias + time_bias)[:, None]]
    maps = torch.cat(columns, 1).view(width, -1, width + 2).permute(1, 2, 0)
    outer, bias = (torch.stack([parameters[n] for parameters in plain]) for n in (4, 5))
    affine = (torch.bmm(maps, outer.mT) + pad(bias[:, None], (0, 0, width + 1, 0))).to(dtype)
    if eps is None:
        return FusedField(affine, None, None, activation)
    # LayerNorm removes the mean over channels: remove it from the map once instead of from every state
    affine = affine - affine.mean(-1, keepdim=True)
    norm = torch.stack([parameters[n] for n in (6, 7) for parameters in plain]).to(dtype)
    return FusedField(affine, norm.view(2, len(plain), 1, width), eps, activation)

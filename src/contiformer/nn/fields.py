"""Vector fields ``f(t, x)`` of the key and value trajectories."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard, get_args

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
    plain = [f for part in parts for f in part if is_plain(f)]
    same = len({(f.activation, f.norm is None) for f in plain}) == 1 and len({len(part) for part in parts}) == 1
    if same and len(plain) == sum(map(len, parts)):
        return fuse(plain, dtype)
    return lambda t, x: torch.stack([f(t, state) for f, state in zip(fields, x.unbind(), strict=True)])


def is_plain(field: nn.Module) -> TypeGuard[ConcatField]:
    """Whether a call of the field is its formula and nothing else: no subclass, no other layers in it, no hooks."""
    if type(field) is not ConcatField:
        return False
    layers: list[nn.Module] = [field.inner, field.time, field.outer]
    kinds: list[type[nn.Module]] = [nn.Linear] * 3
    if field.norm is not None:
        layers, kinds = [*layers, field.norm], [*kinds, nn.LayerNorm]
    for layer, kind in zip(layers, kinds, strict=True):
        own = layer.__dict__.get("_parameters", {})
        if type(layer) is not kind or own.get("weight") is None or own.get("bias") is None:
            return False
    return unhooked(field, *layers)


def fuse(fields: Sequence[ConcatField], dtype: torch.dtype) -> FusedField:
    """Several plain fields of one kind as one batched affine map, norm and activation."""
    width, maps = fields[0].outer.weight.shape[0], []
    for f in fields:
        # columns of the inner map: of the state, of time, and the constant
        inner = torch.cat([f.inner.weight, f.time.weight, (f.inner.bias + f.time.bias)[:, None]], 1)
        # one by one: a batched product of two small matrices wakes threads that take longer than the product
        maps.append(torch.addmm(pad(f.outer.bias[None], (0, 0, width + 1, 0)), inner.mT, f.outer.weight.mT))
    affine, norms = torch.stack(maps).to(dtype), [f.norm for f in fields if f.norm is not None]
    if not norms:
        return FusedField(affine, None, None, fields[0].activation)
    # LayerNorm removes the mean over channels: remove it from the map once instead of from every state
    affine = affine - affine.mean(-1, keepdim=True)
    weights: list[Tensor] = [n.weight for n in norms]
    norm = torch.stack([*weights, *(n.bias for n in norms)]).to(dtype).view(2, len(norms), 1, width)
    return FusedField(affine, norm, norms[0].eps, fields[0].activation)

"""Vector fields ``f(t, x)`` of the key and value trajectories."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
    """``f(t, x) = A x``: trajectories are matrix exponentials, ``k_i(t) = exp(A (t - t_i)) K_i``."""

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
class SigmoidField:
    """Several of the paper's fields as one batched map: ``f(t, x) = amplitude σ(gain ∘ n + shift) + offset``.

    Both activations are a sigmoid, with tanh(z) = 2 σ(2z) - 1. The norm is ``n = z / √(|z|² + floor²)`` with ``z = x @
    matrix + slope t + bias``, where matrix, slope and bias are centred over channels and √d is in the gain, which makes
    this LayerNorm. Without a norm, gain, shift and floor are None and the argument is ``z``.

    Shapes: matrix [F, c, c], the rest [F, 1, c]. There are as many fields F as states, or a multiple: then each of them
    has its part of a state's channels.
    """

    matrix: Tensor
    slope: Tensor
    bias: Tensor
    gain: Tensor | None
    shift: Tensor | None
    floor: float | None
    amplitude: float
    offset: float

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """What is learned."""
        return self.matrix, self.slope, self.bias, self.gain, self.shift

    @property
    def constants(self) -> tuple[float | None, float, float]:
        """What is not."""
        return self.floor, self.amplitude, self.offset

    def __call__(self, t: Tensor, x: Float[Tensor, "states *rows d"]) -> Float[Tensor, "states *rows d"]:
        """Derivatives at t [..., 1] and x [S, ..., d]."""
        states, parts = x.shape[0], self.matrix.shape[0] // x.shape[0]
        rows = x.reshape(states, -1, parts, x.shape[-1] // parts).transpose(1, 2).flatten(0, 1)
        z = torch.baddbmm(torch.addcmul(self.bias, self.slope, t.reshape(1, -1, 1)), rows, self.matrix)
        if self.floor is not None:
            assert self.shift is not None
            assert self.gain is not None
            z = torch.addcmul(self.shift, z * (z.square().sum(-1, keepdim=True) + self.floor**2).rsqrt(), self.gain)
        slopes = (self.amplitude * z.sigmoid() + self.offset).unflatten(0, (states, parts))
        return slopes.transpose(1, 2).reshape(x.shape)


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

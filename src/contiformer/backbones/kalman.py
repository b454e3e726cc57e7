"""Normal laws of a state that moves by a linear equation with noise, and is observed in part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

#: Below this norm of ``A dt`` a series of so many terms is exact to 1e-11, in the noise, too.
_SMALL, _TERMS = 0.125, 8
_LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class Belief:
    """A normal law of ``z = [u, l]``: the mean [..., 2m], and diagonals [..., m] of P_uu, P_ll and P_ul."""

    mean: Float[Tensor, "*shape d"]
    upper: Float[Tensor, "*shape half"]
    lower: Float[Tensor, "*shape half"]
    side: Float[Tensor, "*shape half"]

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All four."""
        return self.mean, self.upper, self.lower, self.side

    @property
    def spread(self) -> Float[Tensor, "*shape numbers"]:
        """Logarithms of the variances, and the correlations of u and l."""
        upper, lower = (part.clamp(min=_LEAST_VARIANCE) for part in (self.upper, self.lower))
        return torch.cat([upper.log(), lower.log(), self.side / (upper.sqrt() * lower.sqrt())], dim=-1)

    @property
    def flat(self) -> Belief:
        """Laws [B, Q] in one row."""
        return Belief(*(part.flatten(0, 1) for part in self.parts))

    def pick(self, which: Int[Tensor, "batch query"]) -> Belief:
        """Of laws [B, N] those with the given numbers."""
        index = which.unsqueeze(-1)
        return Belief(*(part.gather(1, index.expand(-1, -1, part.shape[-1])) for part in self.parts))

    def given(self, y: Float[Tensor, "*shape half"], variance: Float[Tensor, "*shape half"]) -> Belief:
        """After u was observed as y, with this variance of the noise."""
        total = self.upper + variance
        gain, side_gain = self.upper / total, self.side / total
        miss = y - self.mean[..., : y.shape[-1]]
        mean = self.mean + torch.cat([gain * miss, side_gain * miss], dim=-1)
        left = variance / total
        return Belief(mean, left * self.upper, self.lower - side_gain * self.side, left * self.side)


#: From laws and gaps [B] to the laws after the gaps.
Predict = Callable[[Belief, Tensor], Belief]


class Transition(nn.Module):
    """``A = Σ_k α_k(μ) A_k`` with banded blocks, over gaps [B]."""

    band: Tensor

    def __init__(self, size: int, basis: int, bandwidth: int) -> None:
        super().__init__()
        place = torch.arange(size) % (size // 2)
        self.register_buffer("band", (place - place[:, None]).abs() <= bandwidth, persistent=False)
        self.mixing = nn.Linear(size, basis)
        entries = float(self.band.sum(1).float().mean())
        self.matrices = nn.Parameter(0.1 / math.sqrt(entries) * torch.randn(basis, size, size) * self.band)
        self.log_noise = nn.Parameter(torch.full((size,), math.log(math.expm1(0.1))))

    def prepared(self) -> Predict:
        """What gives the law after each gap."""
        matrices, noise = (self.matrices * self.band).flatten(1), F.softplus(self.log_noise)

        def predict(law: Belief, gaps: Tensor) -> Belief:
            matrix = (self.mixing(law.mean).softmax(-1) @ matrices).unflatten(-1, self.band.shape)
            return moved(law, *flow_and_noise(matrix, noise, gaps))

        return predict


class FastTransition(nn.Module):
    """``A = E diag(Σ_k α_k(μ) d_k) Eᵀ`` with orthogonal E, so that all integrals are of numbers."""

    def __init__(self, size: int, basis: int) -> None:
        super().__init__()
        self.mixing = nn.Linear(size, basis)
        self.rates = nn.Parameter(0.1 * torch.randn(basis, size))
        self.turn = nn.Parameter(0.1 * torch.randn(size, size))
        self.log_noise = nn.Parameter(torch.full((size,), math.log(math.expm1(0.1))))

    def prepared(self) -> Predict:
        """What gives the law after each gap."""
        vectors = torch.matrix_exp(self.turn - self.turn.T)
        diffusion = vectors.T * F.softplus(self.log_noise) @ vectors

        def predict(law: Belief, gaps: Tensor) -> Belief:
            rates = self.mixing(law.mean).softmax(-1) @ self.rates
            flow = vectors * (rates * gaps.unsqueeze(-1)).exp().unsqueeze(-2) @ vectors.T
            pairs = (rates.unsqueeze(-1) + rates.unsqueeze(-2)) * gaps[:, None, None]
            near = pairs.abs() < 1e-4
            safe = pairs.where(~near, 1.0)
            growth = torch.where(near, 1 + pairs / 2 + pairs.square() / 6, torch.expm1(safe) / safe)
            noise = vectors @ (diffusion * growth * gaps[:, None, None]) @ vectors.T
            return moved(law, flow, noise)

        return predict


def moved(law: Belief, flow: Float[Tensor, "batch d d"], noise: Float[Tensor, "batch d d"]) -> Belief:
    """The law of ``Φ z`` plus noise, of whose covariance only the diagonals of the blocks are looked at."""
    half = law.upper.shape[-1]
    mean = (flow @ law.mean.unsqueeze(-1)).squeeze(-1)
    top, bottom = flow.split(half, dim=-2)

    def spread(a: Tensor, b: Tensor) -> Tensor:
        """The diagonal of ``a P bᵀ``."""
        (a_u, a_l), (b_u, b_l) = a.split(half, dim=-1), b.split(half, dim=-1)
        by_parts = torch.cat([a_u * b_u, a_l * b_l, a_u * b_l + a_l * b_u], dim=-1)
        return (by_parts @ torch.cat([law.upper, law.lower, law.side], dim=-1).unsqueeze(-1)).squeeze(-1)

    added = noise.diagonal(dim1=-2, dim2=-1)
    across = noise[..., :half, half:].diagonal(dim1=-2, dim2=-1)
    return Belief(
        mean,
        spread(top, top) + added[..., :half],
        spread(bottom, bottom) + added[..., half:],
        spread(top, bottom) + across,
    )


def flow_and_noise(
    matrix: Float[Tensor, "batch d d"], diffusion: Float[Tensor, " d"], gaps: Float[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch d d"], Float[Tensor, "batch d d"]]:
    """``e^{Aδ}`` and ``∫_0^δ e^{As} Q e^{Aᵀs} ds`` for a diagonal Q.

    Power series over ``h = δ / 2^n``, then n doublings ``N(2h) = N(h) + Φ(h) N(h) Φ(h)ᵀ``, ``Φ(2h) = Φ(h)²``.

    Example:
        >>> flow, noise = flow_and_noise(torch.tensor([[[-2.0]]]), torch.tensor([4.0]), torch.tensor([50.0]))
        >>> round(noise.item(), 4)
        1.0
    """
    largest = float((matrix.detach().abs().sum(-1).amax(-1) * gaps.detach()).amax()) if gaps.numel() else 0.0
    doublings = max(0, math.ceil(math.log2(largest / _SMALL))) if 0 < largest < math.inf else 0
    step = (gaps / 2**doublings)[:, None, None]
    moving = step * matrix
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    square = moving @ moving
    cube = square @ moving
    # the terms of the exponential up to the eighth power, three at a time, with few products
    last = one / 720 + moving / 5040 + square / 40320
    flow = one + moving + square / 2 + cube @ (one / 6 + moving / 24 + square / 120 + cube @ last)
    term = step * diffusion.diag()
    noise = term
    for k in range(2, _TERMS + 2):
        half = moving @ term / k
        term = half + half.mT
        noise = noise + term
    for _ in range(doublings):
        noise, flow = noise + flow @ noise @ flow.mT, flow @ flow
    return flow, noise

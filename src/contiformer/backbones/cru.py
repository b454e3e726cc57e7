"""Continuous recurrent units: a continuous-discrete Kalman filter in a latent space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States, check_positive
from contiformer.backbones.recurrence import Rows
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

#: Below this norm of ``A dt`` a series of so many terms is exact to 1e-11, in the noise, too.
_SMALL, _TERMS = 0.125, 8
_LEAST_VARIANCE = 1e-8


class CRU(Backbone):
    """Schirmer, Eltayeb, Lessmann and Rudolph, "Modeling Irregular Time Series with Continuous Recurrent Units" (2022).

    The latent state follows ``dz = A z dt + dβ`` with a diagonal diffusion Q, and is observed as ``y = [I, 0] z`` plus
    noise. An encoder gives y and its variance from a row, the Kalman filter gives the law of z:

    - between rows, over δ: ``μ ← Φ μ``, ``P ← Φ P Φᵀ + ∫ e^{As} Q e^{Aᵀs} ds``, ``Φ = e^{Aδ}``;
    - at a row: ``K = P Hᵀ (H P Hᵀ + R)⁻¹``, ``μ ← μ + K (y - H μ)``, ``P ← (1 - K H) P``.

    As in the paper z has an observed and a hidden half, of P only the diagonals of the four blocks are kept, so that
    nothing has to be inverted, and A is locally linear: ``A = Σ_k α_k(μ) A_k`` with ``α = softmax(W μ + b)`` after each
    row and blocks of A_k that are banded. The state is the sum of a network of the mean and one of the covariance.

    Args:
        n_layers, units: number and width of the hidden layers of the encoder and of the network after the filter.
        latents: size of z, even (30 in the paper's pendulum experiments).
        basis, bandwidth: number of the A_k, and how far from the diagonal their blocks reach.
        time_scale: the filter's time per unit of time; rates begin of order one in it.

    Deviations: A_k begin small and random instead of zero, where the mixing has no gradient. The integral is not Van
    Loan's, whose ``e^{-Aᵀδ}`` overflows: a power series over a short time is doubled until δ is reached. The network of
    the covariance sees logarithms and correlations. At a query the law is that of z given the rows so far.
    """

    citation = "Schirmer et al., Modeling Irregular Time Series with Continuous Recurrent Units, ICML 2022"
    capabilities = Capabilities(causal=True)

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 3,
        dropout: float = 0.1,
        latents: int = 30,
        units: int = 50,
        basis: int = 15,
        bandwidth: int = 3,
        time_scale: float = 10.0,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        if latents < 2 or latents % 2:
            raise ValueError(f"latents must be even and positive, got {latents}: use 30")
        for name, size, least in (("units", units, 1), ("basis", basis, 1), ("bandwidth", bandwidth, 0)):
            if size < least:
                raise ValueError(f"{name} must be at least {least}, got {size}")
        check_positive("10", time_scale=time_scale)
        self.time_scale = time_scale
        half = latents // 2
        self.encoder = _hidden_layers(2 * input_size, units, n_layers)
        self.observation = nn.Linear(units, latents)
        self.transition = Transition(latents, basis, bandwidth)
        self.prior = nn.Parameter(torch.full((2, half), math.log(math.expm1(10.0))))
        self.decode_mean = nn.Sequential(_hidden_layers(latents, units, n_layers), nn.Linear(units, d_model))
        self.decode_spread = nn.Sequential(_hidden_layers(3 * half, units, 1), nn.Linear(units, d_model))
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, self.observation.weight.dtype)
        predict = self.transition.prepared()
        after = self.filtered(rows, predict)
        if query_times is None:
            return self.decoded(after.pick(rows.passed))
        passed, elapsed = rows.until(query_times)
        law = Belief(*(part.flatten(0, 1) for part in after.pick(passed)))
        later = predict(law, (elapsed * self.time_scale).to(law.mean).flatten())
        return self.decoded(later).unflatten(0, passed.shape)

    def filtered(self, rows: Rows, predict: Predict) -> Belief:
        """The laws of z before any row and after each: [B, N + 1, ...]."""
        dtype = rows.values.dtype
        means, variances = self.encoded(rows.inputs)
        upper, lower = F.softplus(self.prior).unsqueeze(1).expand(-1, len(means), -1).unbind(0)
        law = Belief(means.new_zeros(len(means), 2 * upper.shape[1]), upper, lower, torch.zeros_like(upper))
        gaps = (rows.gaps * self.time_scale).to(dtype)
        laws = [law]
        for row, (gap, mean, variance) in enumerate(zip(gaps.T, means.unbind(1), variances.unbind(1), strict=True)):
            law = (predict(law, gap) if row else law).given(mean, variance)
            laws.append(law)
        return Belief(*(torch.stack(parts, dim=1) for parts in zip(*laws, strict=True)))

    def decoded(self, law: Belief) -> Float[Tensor, "*shape d"]:
        """The state, from networks of the mean and of the covariance."""
        return self.dropout(self.decode_mean(law.mean) + self.decode_spread(law.spread))

    def encoded(self, shown: Float[Tensor, "*shape input"]) -> tuple[Tensor, Tensor]:
        """Observation of the latent state, and its variance."""
        mean, spread = self.observation(F.normalize(self.encoder(shown), dim=-1, eps=1e-8)).chunk(2, dim=-1)
        return mean, F.elu(spread) + 1 + 1e-6


def _hidden_layers(inputs: int, units: int, count: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [nn.Linear(inputs, units), nn.ReLU(), nn.LayerNorm(units)]
        inputs = units
    return nn.Sequential(*layers)


class Belief(NamedTuple):
    """A normal law of ``z = [u, l]``: the mean [..., 2m], and diagonals [..., m] of P_uu, P_ll and P_ul."""

    mean: Float[Tensor, "*shape d"]
    upper: Float[Tensor, "*shape half"]
    lower: Float[Tensor, "*shape half"]
    side: Float[Tensor, "*shape half"]

    @property
    def spread(self) -> Float[Tensor, "*shape numbers"]:
        """Logarithms of the variances, and the correlations of u and l."""
        upper, lower = (part.clamp(min=_LEAST_VARIANCE) for part in (self.upper, self.lower))
        return torch.cat([upper.log(), lower.log(), self.side / (upper.sqrt() * lower.sqrt())], dim=-1)

    def pick(self, which: Int[Tensor, "batch query"]) -> Belief:
        """Select laws [B, N] by their numbers."""
        return Belief(*(part.gather(1, which.unsqueeze(-1).expand(-1, -1, part.shape[-1])) for part in self))

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
        half = size // 2
        pairs = half + 2 * sum(half - n for n in range(1, min(bandwidth, half - 1) + 1))
        # entries in a row of the band on average, in single precision
        entries = float(np.float32(2 * pairs) / np.float32(half))
        self.matrices = nn.Parameter(0.1 / math.sqrt(entries) * torch.randn(basis, size, size) * self.band)
        self.log_noise = nn.Parameter(torch.full((size,), math.log(math.expm1(0.1))))

    def prepared(self) -> Predict:
        """The function that gives the law after each gap."""
        matrices, noise = (self.matrices * self.band).flatten(1), F.softplus(self.log_noise)

        def predict(law: Belief, gaps: Tensor) -> Belief:
            matrix = (self.mixing(law.mean).softmax(-1) @ matrices).unflatten(-1, self.band.shape)
            return moved(law, *flow_and_noise(matrix, noise, gaps))

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
    upper, lower = spread(top, top) + added[..., :half], spread(bottom, bottom) + added[..., half:]
    return Belief(mean, upper, lower, spread(top, bottom) + across)


def flow_and_noise(
    matrix: Float[Tensor, "batch d d"], diffusion: Float[Tensor, " d"], gaps: Float[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch d d"], Float[Tensor, "batch d d"]]:
    """``e^{Aδ}`` and ``∫_0^δ e^{As} Q e^{Aᵀs} ds`` for a diagonal Q.

    Power series over ``h = δ / 2^n``, then n doublings ``N(2h) = N(h) + Φ(h) N(h) Φ(h)ᵀ``, ``Φ(2h) = Φ(h)²``.
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

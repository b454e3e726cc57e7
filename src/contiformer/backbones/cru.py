"""Continuous recurrent units: a continuous-discrete Kalman filter in a latent space."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.kalman import Belief, FastTransition, Predict, Transition
from contiformer.backbones.recurrence import Rows, check_sizes
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout


class CRU(Backbone):
    """Schirmer, Eltayeb, Lessmann and Rudolph, "Modeling Irregular Time Series with Continuous Recurrent Units" (2022).

    The latent state follows ``dz = A z dt + dβ`` with a diagonal diffusion Q, and is observed as ``y = [I, 0] z`` plus
    noise. An encoder gives y and its variance from a row, the Kalman filter gives the law of z:

    - between rows, over δ: ``μ ← Φ μ``, ``P ← Φ P Φᵀ + ∫ e^{As} Q e^{Aᵀs} ds``, ``Φ = e^{Aδ}``;
    - at a row: ``K = P Hᵀ (H P Hᵀ + R)⁻¹``, ``μ ← μ + K (y - H μ)``, ``P ← (1 - K H) P``.

    As in the paper z has an observed and a hidden half, of P only the diagonals of the four blocks are kept, so that
    nothing has to be inverted, and A is locally linear: ``A = Σ_k α_k(μ) A_k`` with ``α = softmax(W μ + b)`` after each
    row and blocks of A_k that are banded. With ``fast=True`` (f-CRU) all A_k share orthogonal eigenvectors, and only
    the eigenvalues are mixed. The state is the sum of a network of the mean and one of the covariance.

    Args:
        input_size: channels C.
        d_model: width of the states.
        n_layers: hidden layers of the encoder and of the network after the filter (ReLU and layer normalisation).
        dropout: of the states (none in the paper).
        latents: size of z, even (30 in the paper's pendulum experiments).
        units: width of the hidden layers.
        basis, bandwidth: number of the A_k, and how far from the diagonal their blocks reach.
        time_scale: the filter's time per unit of time; rates begin of order one in it.
        fast: f-CRU.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Deviations: A_k begin small and random instead of zero, where the mixing has no gradient. The integral is not Van
    Loan's, whose ``e^{-Aᵀδ}`` overflows: a power series over a short time is doubled until δ is reached. The network of
    the covariance sees logarithms and correlations. Missing channels are shown as 0 beside the marks of what was
    observed. At a query the law is that of z at that time given the rows so far; before the first row it is the prior.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> CRU(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "Schirmer et al., Modeling Irregular Time Series with Continuous Recurrent Units, ICML 2022"

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
        fast: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        if latents < 2 or latents % 2:
            raise ValueError(f"latents must be even and positive, got {latents}: use 30")
        for name, size, least in (("units", units, 1), ("basis", basis, 1), ("bandwidth", bandwidth, 0)):
            if size < least:
                raise ValueError(f"{name} must be at least {least}, got {size}")
        if not time_scale > 0:
            raise ValueError(f"time_scale must be positive, got {time_scale}: use 10")
        self.d_model, self.time_scale = d_model, time_scale
        self.capabilities = Capabilities(causal=True)
        half = latents // 2
        self.encoder = _hidden_layers(2 * input_size, units, n_layers)
        self.observation = nn.Linear(units, latents)
        self.transition = FastTransition(latents, basis) if fast else Transition(latents, basis, bandwidth)
        self.prior = nn.Parameter(torch.full((2, half), math.log(math.expm1(10.0))))
        self.decode_mean = nn.Sequential(_hidden_layers(latents, units, n_layers), nn.Linear(units, d_model))
        self.decode_spread = nn.Sequential(_hidden_layers(3 * half, units, 1), nn.Linear(units, d_model))
        self.dropout = Dropout(dropout)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        rows = Rows.of(batch, self.observation.weight.dtype)
        predict = self.transition.prepared()
        after = self.filtered(rows, predict)
        if query_times is None:
            return self.decoded(after.pick(rows.passed))
        passed, elapsed = rows.until(query_times)
        law = after.pick(passed)
        later = predict(law.flat, (elapsed * self.time_scale).to(law.mean).flatten())
        return self.decoded(later).unflatten(0, passed.shape)

    def filtered(self, rows: Rows, predict: Predict) -> Belief:
        """The laws of z before any row and after each: [B, N + 1, ...]."""
        dtype = rows.values.dtype
        means, variances = self.encoded(torch.cat([rows.values, rows.observed.to(dtype)], dim=-1))
        upper, lower = F.softplus(self.prior).unsqueeze(1).expand(-1, len(means), -1).unbind(0)
        law = Belief(means.new_zeros(len(means), 2 * upper.shape[1]), upper, lower, torch.zeros_like(upper))
        gaps = (rows.gaps * self.time_scale).to(dtype)
        laws = [law]
        for row, (gap, mean, variance) in enumerate(
            zip(gaps.unbind(1), means.unbind(1), variances.unbind(1), strict=True)
        ):
            law = (predict(law, gap) if row else law).given(mean, variance)
            laws.append(law)
        return Belief(*(torch.stack(parts, dim=1) for parts in zip(*(one.parts for one in laws), strict=True)))

    def decoded(self, law: Belief) -> Float[Tensor, "*shape d"]:
        """The state, from networks of the mean and of the covariance."""
        return self.dropout(self.decode_mean(law.mean) + self.decode_spread(law.spread))

    def encoded(self, shown: Float[Tensor, "batch rows input"]) -> tuple[Tensor, Tensor]:
        """What is observed of the latent state, and its variance."""
        mean, spread = self.observation(F.normalize(self.encoder(shown), dim=-1, eps=1e-8)).chunk(2, dim=-1)
        return mean, F.elu(spread) + 1 + 1e-6


def _hidden_layers(inputs: int, units: int, count: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [nn.Linear(inputs, units), nn.ReLU(), nn.LayerNorm(units)]
        inputs = units
    return nn.Sequential(*layers)

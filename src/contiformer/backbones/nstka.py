"""Attention with a learned, non-stationary kernel of time."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from contiformer.backbones.base import Backbone, QueryTimes, States, check_positive
from contiformer.backbones.encoder_layer import EncoderLayer, TokenEmbedding, Tokens, encode
from contiformer.data.batch import Batch
from contiformer.native.dispatch import usable
from contiformer.native.rivals.spectral_mixture import spectral_mixture
from contiformer.nn.dropout import Dropout

#: Lengths below this are as good as zero, in a unit in which a series spans about 1.
_SHORTEST = 1e-3


class SpectralMixtureKernel(nn.Module):
    """The generalised spectral mixture kernel of two times.

    ``k(t, s) = Σ_i φ_i(t) φ_i(s) √(2 l_i(t) l_i(s) / (l_i(t)² + l_i(s)²)) exp(-(t - s)² / (l_i(t)² + l_i(s)²))
    cos(2π (μ_i(t) t - μ_i(s) s))``, where weights ``φ``, lengths ``l`` and frequencies ``μ`` are networks of time.
    It is symmetric and positive semi-definite.

    ``mixtures`` is the number of components i, and the width of the networks.

    Shapes: t [B, T], s [B, N] -> [B, T, N].
    """

    def __init__(self, mixtures: int = 4) -> None:
        super().__init__()
        check_positive(mixtures=mixtures)
        self.hidden = nn.Linear(1, 3 * mixtures)
        self.out = nn.Parameter(torch.empty(3, mixtures, mixtures))
        nn.init.xavier_uniform_(self.out)
        # components begin at different scales: none would otherwise look further or closer than another
        scale = torch.linspace(0, 1, mixtures)
        lengths, frequencies = 0.1**scale, 4 * scale + 0.25
        start = torch.stack([torch.ones(mixtures), lengths, frequencies])
        self.shift = nn.Parameter(start.expm1().log())

    def functions(self, t: Float[Tensor, "batch times"]) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, lengths and frequencies at the times, each [B, times, mixtures]."""
        hidden = torch.tanh(self.hidden(t.unsqueeze(-1))).unflatten(-1, (3, -1))
        said = softplus(torch.einsum("btkm,kmn->btkn", hidden, self.out) + self.shift)
        weight, length, frequency = said.unbind(2)
        return weight, length + _SHORTEST, frequency

    def forward(
        self, t: Float[Tensor, "batch times"], s: Float[Tensor, "batch others"]
    ) -> Float[Tensor, "batch times others"]:
        if not t.requires_grad and not s.requires_grad and usable(t, s, *self.parameters()):
            points = self._points(t)
            other_points = points if s is t else self._points(s)
            # autocast may have made them something else
            if usable(points, other_points):
                return spectral_mixture(t, s, points, other_points)
        weight, length, frequency = (x.unsqueeze(2) for x in self.functions(t))
        other_weight, other_length, other_frequency = (x.unsqueeze(1) for x in self.functions(s))
        now, then = t[:, :, None, None], s[:, None, :, None]
        squares = length.square() + other_length.square()
        gibbs = (2 * length * other_length / squares).sqrt() * torch.exp(-(now - then).square() / squares)
        wave = torch.cos(2 * math.pi * (frequency * now - other_frequency * then))
        return (weight * other_weight * gibbs * wave).sum(-1)

    def _points(self, t: Float[Tensor, "batch times"]) -> Float[Tensor, "batch 3 mixtures times"]:
        """The functions as the compiled kernel takes them: ``l²``, ``φ √(√2 l)`` and ``2π μ t``."""
        weight, length, frequency = self.functions(t)
        # whole turns leave before anything is rounded: late times have the digits of early ones
        turns = frequency.double() * t.double().unsqueeze(-1)
        phase = 2 * math.pi * (turns - turns.round()).to(t.dtype)
        return torch.stack([length.square(), weight * (math.sqrt(2) * length).sqrt(), phase], dim=1).mT


class KernelLayer(EncoderLayer):
    """A layer with ``softmax(Q Kᵀ / √d_k + k(t, t'))``; the kernel is the same for all heads."""

    def __init__(self, d_model: int, n_heads: int, mixtures: int, **options: Any) -> None:
        super().__init__(d_model, n_heads, **options)
        self.kernel = SpectralMixtureKernel(mixtures)

    def bias(self, tokens: Tokens, observations: Tokens) -> Float[Tensor, "batch tokens obs"]:
        t = tokens.times.to(tokens.x.dtype)
        return self.kernel(t, t if tokens is observations else observations.times.to(tokens.x.dtype))


class NSTKA(Backbone):
    """Non-stationary time-aware kernelized attention (Ma et al., KDD 2022).

    A transformer encoder that knows time by a kernel alone: ``softmax(Q Kᵀ / √d_k + k_GSM(t, t')) V`` with the
    generalised spectral mixture kernel (:class:`SpectralMixtureKernel`; Remes et al. 2017), one for each layer.

    Deviations:
        - The authors' code adds the kernel to the scores, as here; the ContiFormer paper (appendix) writes a product.
          The code also divides the kernel by ``exp(√d_k)``, which at usual widths nearly removes it; that is left out.
        - The networks of time have tanh and softplus where the code has ReLU, because a length of 0 from a ReLU gets no
          gradient any more; and components begin at different lengths and frequencies.
        - Queries are a learned vector that attends to the observations, in place of the original's decoder.
    """

    citation = "Ma et al., Non-stationary Time-aware Kernelized Attention, KDD 2022"
    causal_option = True

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 2,
        dropout: float = 0.1,
        n_heads: int = 1,
        d_ff: int | None = None,
        mixtures: int = 4,
        causal: bool = False,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        self.capabilities = self.capabilities_for(causal=causal)
        self.embedding = TokenEmbedding(input_size, d_model, causal=causal)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            KernelLayer(d_model, n_heads, mixtures, d_ff=d_ff, dropout=dropout) for _ in range(n_layers)
        )

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        tokens = self.embedding(batch, query_times)
        return encode(self.layers, tokens.with_states(self.dropout(tokens.x)), asked=query_times is not None)

"""FEDformer: attention among frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Unpack

import torch
from jaxtyping import Complex, Int
from torch import Tensor, nn

from contiformer.backbones.autoformer import DecomposingTransformer, DecompositionBackbone, decoder_start
from contiformer.backbones.base import check_heads, check_positive
from contiformer.backbones.regular import OtherStates, RowStates, WindowOptions

FrequencyActivation = Literal["softmax", "tanh"]


class FEDformer(DecompositionBackbone):
    """FEDformer, Fourier version (Zhou et al., Frequency Enhanced Decomposed Transformer, ICML 2022).

    Autoformer's architecture (:class:`~contiformer.backbones.autoformer.DecomposingTransformer`), with blocks that work
    on M frequencies, which are chosen at random when the model is made: :class:`FourierBlock` in place of attention to
    itself, :class:`FourierAttention` in place of attention to the encoder. With several ``kernels`` the trend is a
    mixture of moving averages.

    Deviations:
        - The formulas are those of the paper. In the authors' code a frequency that is not among the lowest M comes out
          as another one, keys are taken for values, and the attention is multiplied by ``1 / d²`` and by weights that
          are as small, which leaves nothing of it.
        - ``softmax`` by default, of the two choices of the paper, where the code has ``tanh``: complex tanh has poles.
        - The Fourier transform is unitary, and products of the attention are divided by ``√(d / heads)``.

    Args:
        modes: M, at most; there are L / 2 of L rows.
        activation: of the attention: "softmax" (of moduli) or "tanh".
    """

    citation = "Zhou et al., FEDformer: Frequency Enhanced Decomposed Transformer, ICML 2022"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_heads: int = 8,
        d_ff: int | None = None,
        decoder_layers: int = 1,
        modes: int = 64,
        kernels: Sequence[int] = (24,),
        activation: FrequencyActivation = "softmax",
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        check_heads(d_model, n_heads)
        check_positive("64 for all that a window of 128 rows has", modes=modes)
        if activation not in ("softmax", "tanh"):
            raise ValueError(f"activation must be 'softmax' or 'tanh', got {activation!r}")
        size, history, steps = (d_model, n_heads), self.history, decoder_start(self.history) + self.horizon
        # all layers look at the same frequencies, as in the original
        here, there, inside, across = (choose_modes(n, modes) for n in (history, steps, history, steps))
        self.model = DecomposingTransformer(
            input_size, d_model, d_ff or 4 * d_model, self.rate, history, self.horizon, kernels,
            encoder=[FourierBlock(*size, here) for _ in range(self.n_layers)],
            decoder=[(FourierBlock(*size, there), FourierAttention(*size, across, inside, activation))
                     for _ in range(decoder_layers)],
            positions=True,
        )  # fmt: skip


def choose_modes(length: int, modes: int) -> Int[Tensor, " modes"]:
    """Random frequencies in ascending order, among the L / 2 lowest."""
    return torch.randperm(max(1, length // 2))[:modes].sort().values


class FourierBlock(nn.Module):
    """``F⁻¹(pad(R ⊙ select(F(q))))`` with ``q = W x``: numbers of a head are mixed frequency by frequency.

    ``R`` has a complex matrix for each head and chosen frequency; all other frequencies are 0.

    Shapes: [B, N, d] -> [B, N, d].
    """

    modes: Tensor

    def __init__(self, d_model: int, n_heads: int, modes: Int[Tensor, " modes"]) -> None:
        super().__init__()
        part = d_model // n_heads
        self.n_heads = n_heads
        self.query, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        # the last dimension is a complex number: .double() would pass complex parameters by
        self.mix = nn.Parameter(torch.rand(n_heads, len(modes), part, part, 2) / d_model**2)
        self.register_buffer("modes", modes.clone())

    def forward(self, x: RowStates, other: Tensor | None = None) -> RowStates:
        """The mixed series; ``other`` is x."""
        chosen = spectrum(self.query(x), self.modes, self.n_heads)
        mixed = torch.einsum("bmhi,hmio->bmho", chosen, torch.view_as_complex(self.mix))
        return self.out(series(mixed, self.modes, x.shape[1]))


class FourierAttention(nn.Module):
    """``F⁻¹(pad(σ(Q̃ K̃ᵀ) Ṽ))``, the attention of frequencies to frequencies of other rows.

    Shapes: x [B, N, d] and the rows attended to [B, M, d] -> [B, N, d].
    """

    modes: Tensor
    other_modes: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        modes: Int[Tensor, " modes"],
        other_modes: Int[Tensor, " others"],
        activation: FrequencyActivation,
    ) -> None:
        super().__init__()
        self.n_heads, self.activation = n_heads, activation
        self.query, self.key_value = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("modes", modes.clone())
        self.register_buffer("other_modes", other_modes.clone())

    def forward(self, x: RowStates, other: OtherStates) -> RowStates:
        queries = spectrum(self.query(x), self.modes, self.n_heads)
        keys, values = (
            spectrum(part, self.other_modes, self.n_heads) for part in self.key_value(other).chunk(2, dim=-1)
        )
        products = torch.einsum("bmhi,bnhi->bhmn", queries, keys) / math.sqrt(queries.shape[-1])
        weights = products.tanh() if self.activation == "tanh" else products.abs().softmax(-1).to(products.dtype)
        return self.out(series(torch.einsum("bhmn,bnhi->bmhi", weights, values), self.modes, x.shape[1]))


def spectrum(x: RowStates, modes: Int[Tensor, " modes"], n_heads: int) -> Complex[Tensor, "batch modes heads part"]:
    """The chosen Fourier coefficients of each number."""
    return torch.fft.rfft(x, dim=1, norm="ortho")[:, modes].unflatten(-1, (n_heads, -1))


def series(
    coefficients: Complex[Tensor, "batch modes heads part"], modes: Int[Tensor, " modes"], length: int
) -> RowStates:
    """The real series of these frequencies, all others being 0."""
    flat = coefficients.flatten(2)
    full = flat.new_zeros(len(flat), length // 2 + 1, flat.shape[-1]).index_copy(1, modes, flat)
    return torch.fft.irfft(full, n=length, dim=1, norm="ortho")

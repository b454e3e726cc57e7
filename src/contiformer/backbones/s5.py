"""S5: diagonal linear state space layers, discretised with the real time steps and run by a parallel scan."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States
from contiformer.backbones.recurrence import Rows, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

#: Real parts of the eigenvalues stay below this, so that no state grows without bound.
_STABLE = -1e-4


class S5(Backbone):
    """Smith, Warrington and Linderman, "Simplified State Space Layers for Sequence Modeling" (ICLR 2023).

    Each layer is a linear system ``dx/dt = Λ x + B̃ u``, ``y = 2 Re(C̃ x) + D ⊙ u`` with complex ``Λ`` (one of each
    conjugate pair), begun at the eigenvalues of HiPPO-LegS. The input of row k is held over the gap δ_k before it:
    ``x_k = Λ̄_k x_{k-1} + B̄_k u_k``, ``Λ̄_k = exp(Λ Δ δ_k)``, ``B̄_k = Λ⁻¹ (Λ̄_k - 1) B̃`` with learned time scales Δ.
    All x_k come from one parallel scan. Then ``z = u + y ⊙ σ(W GELU(y))``, with layer normalisation before or after.

    Args:
        dropout: after the activation and after the gate.
        state_size: real size of x, the P of the paper; half as many complex numbers.
        blocks: HiPPO matrices on the diagonal at the start, the J of the paper; ``2 * blocks`` divides ``state_size``.
        slowest, fastest: Δ begins between them, log-uniformly, per unit of time, which is about a series.
        first_step: the gap before the first row, and between rows at the same time, for the input (not for the decay).
        prenorm: normalise before the linear system instead of after the residual.
        bidirectional: a second scan runs back in time, and states depend on the future, too.

    Deviations: eigenvalues are kept stable, an option of the authors' code, and normalisation is that of layers. Time
    scales are per unit of time: a series of 1000 rows sees those of the paper (0.001 to 0.1 per row). In the original a
    second row at the same time would not be seen by later ones, and Λ, B̃ and Δ have a smaller learning rate. A query is
    a row with a learned input over the time since the last row (and until the next one), which no other row sees.
    """

    citation = "Smith et al., Simplified State Space Layers for Sequence Modeling, ICLR 2023"
    capabilities = Capabilities(causal=True)

    @classmethod
    def capabilities_for(cls, **options: Any) -> Capabilities:
        """Causal unless bidirectional."""
        return Capabilities(causal=not options.get("bidirectional", False))

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 4,
        dropout: float = 0.1,
        state_size: int = 64,
        blocks: int = 8,
        slowest: float = 1.0,
        fastest: float = 100.0,
        first_step: float = 0.01,
        prenorm: bool = True,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        if blocks < 1 or state_size < 1 or state_size % (2 * blocks):
            raise ValueError(
                f"state_size must be a multiple of 2 * blocks, got {state_size} and {blocks}: use 64 and 8"
            )
        if not 0 < slowest <= fastest or not first_step > 0:
            raise ValueError(
                f"0 < slowest <= fastest and 0 < first_step must hold, got {slowest}, {fastest} and {first_step}: "
                "use 1, 100 and 0.01"
            )
        self.first_step, self.bidirectional = first_step, bidirectional
        self.capabilities = self.capabilities_for(bidirectional=bidirectional)
        self.project = nn.Linear(2 * input_size, d_model)
        self.query = nn.Parameter(0.02 * torch.randn(d_model))
        self.layers = nn.ModuleList(
            S5Layer(
                LinearSystem(d_model, state_size, blocks, (slowest, fastest), ways=1 + bidirectional), dropout, prenorm
            )
            for _ in range(n_layers)
        )

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, self.query.dtype)
        times = Times(rows, query_times, self.first_step, bidirectional=self.bidirectional)
        x = self.project(rows.inputs) * rows.present.unsqueeze(-1)
        asked = None if query_times is None else self.query.expand(*query_times.shape, -1)
        for layer in self.layers:
            x, asked = layer(x, asked, times)
        return state_after(x, rows.passed) if asked is None else asked


class Times:
    """Gaps around rows and queries, in each direction of time.

    Attributes:
        gaps: for each direction, [B, N] between a row and the one before it (in that direction).
        held: the same, with ``first_step`` where the gap is 0: for how long the input of a row counts.
        nearest, elapsed: for each direction, [B, Q] the number of the row before a query (from 1 on; 0: there is none),
            and the time since it.
        present: [B, N], real rows.
    """

    def __init__(self, rows: Rows, query_times: Tensor | None, first_step: float, *, bidirectional: bool) -> None:
        dtype = rows.values.dtype
        self.present = rows.present
        forward = rows.gaps
        gaps = [forward] + ([F.pad(forward[:, 1:], (0, 1))] if bidirectional else [])
        self.gaps = [gap.to(dtype) for gap in gaps]
        self.held = [torch.where(gap > 0, gap, first_step) for gap in self.gaps]
        self.nearest: list[Tensor] = []
        self.elapsed: list[Tensor] = []
        if query_times is None:
            return
        passed, elapsed = rows.until(query_times)
        self.nearest, self.elapsed = [passed], [elapsed.to(dtype)]
        if bidirectional:
            coming = passed < rows.present.sum(1, keepdim=True)
            following = rows.times.gather(1, passed.clamp(max=rows.times.shape[1] - 1))
            self.nearest.append(torch.where(coming, passed + 1, 0))
            self.elapsed.append(torch.where(coming, following - query_times.to(following), 0.0).to(dtype))


class S5Layer(nn.Module):
    """The linear system, a gate, the residual and the norm, for rows [B, N, d] and queries [B, Q, d] (or None)."""

    def __init__(self, system: LinearSystem, dropout: float, prenorm: bool) -> None:
        super().__init__()
        width = system.through.shape[0]
        self.system, self.prenorm = system, prenorm
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, asked: Tensor | None, times: Times) -> tuple[Tensor, Tensor | None]:
        u = self.norm(x) if self.prenorm else x
        u_asked = self.norm(asked) if self.prenorm and asked is not None else asked
        y, y_asked = self.system(u, u_asked, times)
        return self._finish(x, y), None if asked is None or y_asked is None else self._finish(asked, y_asked)

    def _finish(self, x: Tensor, y: Tensor) -> Tensor:
        z = x + self.dropout(y * self.gate(self.dropout(F.gelu(y))).sigmoid())
        return z if self.prenorm else self.norm(z)


class LinearSystem(nn.Module):
    """``dx/dt = Λ x + B̃ u``, ``y = 2 Re(C̃ x) + D ⊙ u``, in one or two directions of time that share Λ, B̃ and Δ.

    Complex numbers are kept as pairs of real ones, so that every optimiser and file format can take them.
    """

    def __init__(self, width: int, state_size: int, blocks: int, scales: tuple[float, float], *, ways: int = 1) -> None:
        super().__init__()
        size = state_size // blocks
        eigenvalues, vectors = hippo_eigenvectors(size)
        self.eigenvalues = nn.Parameter(torch.view_as_real(eigenvalues.repeat(blocks)).float())
        full = torch.block_diag(*[vectors] * blocks)
        into = torch.randn(state_size, width) / math.sqrt(state_size)
        self.into = nn.Parameter(torch.view_as_real(full.mH @ into.to(full.dtype)).float())
        out = torch.randn(ways, width, state_size, dtype=full.dtype) * math.sqrt(2 / state_size)
        self.out = nn.Parameter(torch.view_as_real(out @ full).float())
        self.through = nn.Parameter(torch.randn(width))
        low, high = (math.log(scale) for scale in scales)
        self.log_scale = nn.Parameter(low + (high - low) * torch.rand(state_size // 2))

    def forward(self, u: Tensor, asked: Tensor | None, times: Times) -> tuple[Tensor, Tensor | None]:
        real, imaginary = self.eigenvalues.unbind(-1)
        rate = torch.complex(real.clamp(max=_STABLE), imaginary)
        drive = self._drive(u) * times.present.unsqueeze(-1)
        y = self.through * u
        y_asked = None if asked is None else self.through * asked
        for way, (gaps, held) in enumerate(zip(times.gaps, times.held, strict=True)):
            decay, gain = self.discretise(rate, held)
            decay = torch.where(gaps.unsqueeze(-1) > 0, decay, 1.0)
            x = linear_scan(decay, gain * drive) if way == 0 else _from_behind(decay, gain * drive)
            y = y + self._read(x, way)
            if asked is not None and y_asked is not None:
                decay, gain = self.discretise(rate, times.elapsed[way])
                near = state_after(x, times.nearest[way])
                y_asked = y_asked + self._read(decay * near + gain * self._drive(asked), way)
        return y, y_asked

    def discretise(
        self, rate: Complex[Tensor, " half"], gaps: Float[Tensor, "batch rows"]
    ) -> tuple[Complex[Tensor, "batch rows half"], Complex[Tensor, "batch rows half"]]:
        """Zero-order hold over each gap: ``Λ̄ = exp(Λ Δ δ)`` and ``Λ⁻¹ (Λ̄ - 1)``."""
        moved = torch.expm1(rate * (gaps.unsqueeze(-1) * self.log_scale.exp()))
        return moved + 1, moved / rate

    def _drive(self, u: Float[Tensor, "batch rows d"]) -> Complex[Tensor, "batch rows half"]:
        """B̃ u."""
        weight = self.into.transpose(1, 2).flatten(0, 1)
        return torch.view_as_complex((u @ weight.T).unflatten(-1, (-1, 2)))

    def _read(self, x: Complex[Tensor, "batch rows half"], way: int) -> Float[Tensor, "batch rows d"]:
        """2 Re(C̃ x)."""
        real, imaginary = self.out[way].unbind(-1)
        return 2 * (x.real @ real.T - x.imag @ imaginary.T)


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """``x_k = a_k x_{k-1} + b_k`` along dimension 1, from ``x_{-1} = 0``, in parallel.

    Neighbours are joined to steps of twice the length, whose states come from the same scan, and give those in between:
    log2 N levels, O(N) work.
    """
    n = a.shape[1]
    if n < 2:
        return b
    even_a, odd_a, even_b, odd_b = a[:, 0 : n - 1 : 2], a[:, 1::2], b[:, 0 : n - 1 : 2], b[:, 1::2]
    odd = linear_scan(odd_a * even_a, torch.addcmul(odd_b, odd_a, even_b))
    before = odd[:, : (n - 1) // 2]
    even = torch.cat([b[:, :1], torch.addcmul(b[:, 2::2], a[:, 2::2], before)], dim=1)
    paired = torch.stack([even[:, : n // 2], odd], dim=2).flatten(1, 2)
    return paired if n % 2 == 0 else torch.cat([paired, even[:, -1:]], dim=1)


def _from_behind(a: Tensor, b: Tensor) -> Tensor:
    """The scan from the last row to the first."""
    return linear_scan(a.flip(1), b.flip(1)).flip(1)


def hippo_eigenvectors(size: int) -> tuple[Complex[Tensor, " half"], Complex[Tensor, "size half"]]:
    """Eigenvalues with negative imaginary part of the normal part of HiPPO-LegS, and their eigenvectors.

    ``A_nk = -√(2n+1) √(2k+1)`` for n > k, ``-(n+1)`` on the diagonal and 0 above it; its normal part is ``A + p pᵀ``
    with ``p_n = √(n + ½)``, which is minus a half plus an antisymmetric matrix.
    """
    n = torch.arange(size, dtype=torch.float64)
    root = (2 * n + 1).sqrt()
    hippo = -(torch.outer(root, root).tril() - n.diag())
    normal = hippo + torch.outer(root, root) / 2
    imaginary, vectors = torch.linalg.eigh(-1j * (normal - normal.T) / 2)
    half = size // 2
    return torch.complex(normal.diagonal().mean().expand(half), imaginary[:half]), vectors[:, :half]

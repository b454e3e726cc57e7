"""TimesNet: two-dimensional convolutions over a series folded at its periods."""

from __future__ import annotations

from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, pad

from contiformer.backbones.base import States, check_positive
from contiformer.backbones.regular import RegularBackbone, WindowEmbedding, WindowOptions, WindowValues


class TimesNet(RegularBackbone):
    """TimesNet (Wu et al., Temporal 2D-Variation Modeling for General Time Series Analysis, ICLR 2023).

    The window is embedded, mapped along time from L rows to the ``T = L + horizon`` rows and steps, and then passes
    blocks ``X ← LN(X + Σ_i softmax(A)_i unfold(Inception(fold(X, p_i))))``. ``p_i`` are the k periods of largest
    amplitude ``A_i`` (:func:`main_periods`), ``fold`` lays the series in rows of p_i with zeros at the end, and
    ``Inception`` is two means of convolutions of sizes 1, 3, ..., 11 with GELU between.

    States are those of the last block at the T places; the paper's forecast is a linear map of them. The paper centres
    each window, divides it by its spread, and turns the forecast back, as Forecasting does with ``normalize="window"``.

    Deviations:
        - Periods are chosen for each series, as the paper has it; the authors' code chooses them for the whole batch.
          ``p = ⌊T / f⌋``, as in the code; the paper has ``⌈T / f⌉``.
        - A mean of convolutions is computed as one convolution with the mean of their kernels, which is the same.

    Args:
        d_ff: numbers between the two convolutions (None: ``d_model``).
        periods, n_kernels: k, and the convolutions in a mean.
    """

    citation = "Wu et al., TimesNet: Temporal 2D-Variation Modeling, ICLR 2023"
    normalize = "window"

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        d_ff: int | None = None,
        periods: int = 5,
        n_kernels: int = 6,
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        check_positive(periods=periods, n_kernels=n_kernels)
        self.embedding = WindowEmbedding(input_size, d_model, self.rate, self.history)
        self.extend = nn.Linear(self.history, self.history + self.horizon)
        self.blocks = nn.ModuleList(
            TimesBlock(d_model, d_ff or d_model, periods, n_kernels) for _ in range(self.n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def states(self, window: WindowValues) -> States:
        x = self.extend(self.embedding(window).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = self.norm(block(x))
        return x


class TimesBlock(nn.Module):
    """``X + Σ_i softmax(A)_i unfold(Inception(fold(X, p_i)))``.

    Shapes: [B, T, d] -> [B, T, d].
    """

    def __init__(self, d_model: int, d_ff: int, periods: int, n_kernels: int) -> None:
        super().__init__()
        self.periods = periods
        self.widen, self.narrow = Inception(d_model, d_ff, n_kernels), Inception(d_ff, d_model, n_kernels)

    def forward(self, x: Float[Tensor, "batch steps d"]) -> Float[Tensor, "batch steps d"]:
        periods, amplitudes = main_periods(x, self.periods)
        shares = amplitudes.softmax(1)
        kernels = self.widen.kernel(), self.narrow.kernel()
        out = x
        # all pictures of one width at once, whichever series they are of
        for period in periods.unique().tolist():
            which, rank = (periods == period).nonzero().unbind(1)
            seen = self._read(x[which], period, *kernels)
            out = out.index_add(0, which, (shares[which, rank, None, None] * seen).to(out.dtype))
        return out

    def _read(
        self, x: Float[Tensor, "pictures steps d"], period: int, widen: Tensor, narrow: Tensor
    ) -> Float[Tensor, "pictures steps d"]:
        length = x.shape[1]
        folded = pad(x, (0, 0, 0, -length % period)).unflatten(1, (-1, period))
        picture = self.narrow(gelu(self.widen(folded.permute(0, 3, 1, 2), widen)), narrow)
        return picture.flatten(2).transpose(1, 2)[:, :length]


class Inception(nn.Module):
    """The mean of convolutions of sizes 1, 3, 5, ...

    Shapes: [B, d_in, height, width] -> [B, d_out, height, width].
    """

    def __init__(self, d_in: int, d_out: int, n_kernels: int) -> None:
        super().__init__()
        sizes = [2 * number + 1 for number in range(n_kernels)]
        self.kernels = nn.ParameterList(nn.Parameter(torch.empty(d_out, d_in, size, size)) for size in sizes)
        for kernel in self.kernels:
            nn.init.kaiming_normal_(kernel, mode="fan_out", nonlinearity="relu")
        self.bias = nn.Parameter(torch.zeros(d_out))

    def kernel(self) -> Float[Tensor, "d_out d_in size size"]:
        """The one whose convolution is the mean of all."""
        most = len(self.kernels) - 1
        return torch.stack([pad(kernel, [most - n] * 4) for n, kernel in enumerate(self.kernels)]).mean(0)

    def forward(
        self, x: Float[Tensor, "batch d_in height width"], kernel: Float[Tensor, "d_out d_in size size"] | None = None
    ) -> Float[Tensor, "batch d_out height width"]:
        """The picture after the convolutions; ``kernel``: that of :meth:`kernel`, computed once for several calls."""
        kernel = self.kernel() if kernel is None else kernel
        most = len(self.kernels) - 1
        down, across = (min(most, size - 1) for size in x.shape[2:])
        kernel = kernel[..., most - down : most + down + 1, most - across : most + across + 1]
        return conv2d(x, kernel, self.bias, padding=(down, across))


def main_periods(
    x: Float[Tensor, "batch steps d"], most: int
) -> tuple[Int[Tensor, "batch periods"], Float[Tensor, "batch periods"]]:
    """The lengths of the strongest periods of each series, and their amplitudes, the means over all numbers."""
    length = x.shape[1]
    # a mean is no period
    amplitudes = torch.fft.rfft(x, dim=1).abs().mean(-1)[:, 1:]
    strongest, place = amplitudes.topk(min(most, amplitudes.shape[1]), dim=1)
    return length // (place + 1), strongest

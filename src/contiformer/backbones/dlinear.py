"""DLinear: two linear maps along time."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.autoformer import Decomposition
from contiformer.backbones.regular import RegularBackbone


class DLinear(RegularBackbone):
    """DLinear (Zeng et al., Are Transformers Effective for Time Series Forecasting?, AAAI 2023).

    The window X of a channel is split into a moving average ``T`` and the rest ``S = X - T``, and each is mapped along
    time: ``ŷ = W_s S + b_s + W_t T + b_t``, with the same weights for all channels or, with ``individual``, with
    weights for each.

    A state begins with the C forecasts at that step; its other numbers are 0. So DLinear is exactly what
    comes out of the first C numbers, without any head; a linear head adds nothing to what one channel can become.

    Deviations:
        - States of rows come from two maps of their own, from the window to itself: what the authors' benchmark does
          for classification. They learn only where such states are asked for.
        - A series of fewer than ``history`` rows is preceded by its first row, repeated.

    Args:
        input_size: channels C.
        d_model: width of the states, at least C.
        n_layers, dropout: change nothing; DLinear has neither.
        history, horizon: rows of a window, and steps after it that can be asked for.
        kernel: rows of the moving average.
        individual: whether each channel has weights of its own.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.5, 1], [[1.0], [2.0], [4.0]])])
        >>> later = torch.tensor([[1.5, 2.0]], dtype=torch.float64)
        >>> DLinear(input_size=1, d_model=4, history=3, horizon=2)(batch, later).shape
        torch.Size([1, 2, 4])
    """

    citation = "Zeng et al., Are Transformers Effective for Time Series Forecasting?, AAAI 2023"

    forecasts = True
    calendar = False

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.0,
        history: int = 96,
        horizon: int = 24,
        kernel: int = 25,
        individual: bool = False,
    ) -> None:
        super().__init__(input_size, d_model, n_layers, history, horizon)
        kinds = input_size if individual else 1
        self.decomposition = Decomposition((kernel,))
        self.future = DecomposedLinear(history, horizon, kinds)
        self.past = DecomposedLinear(history, history, kinds)

    def within(self, window: Float[Tensor, "batch history channels"]) -> Float[Tensor, "batch history d"]:
        """What the maps of the window to itself make of it."""
        return self._states(self.past, window)

    def ahead(self, window: Float[Tensor, "batch history channels"]) -> Float[Tensor, "batch horizon d"]:
        """The forecasts, and zeros behind them."""
        return self._states(self.future, window)

    def _states(self, maps: DecomposedLinear, window: Tensor) -> Tensor:
        said = maps(*self.decomposition(window))
        return nn.functional.pad(said, (0, self.d_model - said.shape[-1]))


class DecomposedLinear(nn.Module):
    """``W_s S + b_s + W_t T + b_t`` along time.

    Weights begin as ``1 / L``, as in the authors' code: before training the forecast is the mean of the window.

    Shapes: S and T [B, L, C] -> [B, N, C].
    """

    def __init__(self, length: int, steps: int, kinds: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2, kinds, steps, length), 1 / length))
        self.bias = nn.Parameter(torch.empty(2, kinds, steps).uniform_(-1, 1) / math.sqrt(length))

    def forward(
        self, seasonal: Float[Tensor, "batch rows channels"], trend: Float[Tensor, "batch rows channels"]
    ) -> Float[Tensor, "batch steps channels"]:
        """The sum of both maps."""
        parts = torch.stack([seasonal, trend])
        each = self.weight.expand(-1, seasonal.shape[-1], -1, -1)
        return torch.einsum("pcnl,pblc->bnc", each, parts) + self.bias.sum(0).T

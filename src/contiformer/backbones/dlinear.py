"""DLinear: two linear maps along time."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.autoformer import Decomposition
from contiformer.backbones.base import States
from contiformer.backbones.regular import RegularBackbone, WindowOptions, WindowValues


class DLinear(RegularBackbone):
    """DLinear (Zeng et al., Are Transformers Effective for Time Series Forecasting?, AAAI 2023).

    The window X of a channel is split into a moving average ``T`` and the rest ``S = X - T``, and each is mapped along
    time: ``ŷ = W_s S + b_s + W_t T + b_t``, with the same weights for all channels or, with ``individual``, with
    weights for each.

    A state begins with the C forecasts at that step, which are DLinear without any head; its other numbers are 0.
    States of rows come from two maps of their own, from the window to itself, as in the authors' benchmark for
    classification. ``n_layers`` and ``dropout`` change nothing; ``kernel`` is that of the moving average.
    """

    citation = "Zeng et al., Are Transformers Effective for Time Series Forecasting?, AAAI 2023"
    forecasts = True
    calendar = False

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        kernel: int = 25,
        individual: bool = False,
        **window: Unpack[WindowOptions],
    ) -> None:
        super().__init__(input_size, d_model, **window)
        kinds = input_size if individual else 1
        self.decomposition = Decomposition((kernel,))
        self.future = DecomposedLinear(self.history, self.horizon, kinds)
        self.past = DecomposedLinear(self.history, self.history, kinds)

    def within(self, window: WindowValues) -> States:
        return self._states(self.past, window)

    def ahead(self, window: WindowValues) -> States:
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
        parts = torch.stack([seasonal, trend])
        each = self.weight.expand(-1, seasonal.shape[-1], -1, -1)
        return torch.einsum("pcnl,pblc->bnc", each, parts) + self.bias.sum(0).T

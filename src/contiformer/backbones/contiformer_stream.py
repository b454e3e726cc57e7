"""ContiFormer on a sequence that goes on."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.backbones.contiformer import ContiFormer
from contiformer.nn.layer import ContiFormerLayer
from contiformer.nn.stream import LayerStream, can_stream


class ContiFormerStream:
    """States of a causal model, one observation after the other, as a pass over the whole sequence would give them.

    Example:
        >>> model = ContiFormer(input_size=1, d_model=8, causal=True).eval()
        >>> stream = ContiFormerStream(model)
        >>> stream.append(torch.ones(1), 0.0).shape, stream.at(0.5).shape
        (torch.Size([8]), torch.Size([8]))
    """

    def __init__(self, model: ContiFormer) -> None:
        self.model = model
        self.layers = [LayerStream(layer) for layer in model.layers if isinstance(layer, ContiFormerLayer)]
        self._input: Tensor | None = None
        self._clock = 0.0

    @staticmethod
    def suits(model: ContiFormer) -> bool:
        """Whether the model can be told its observations one after the other."""
        return all(isinstance(layer, ContiFormerLayer) and can_stream(layer) for layer in model.layers)

    def _now(self, time: float) -> tuple[float, Float[Tensor, " d"]]:
        clock = self.model.clock(torch.tensor(time, dtype=torch.float64))
        return float(clock), self.model.encoding(clock).to(self.model.input_proj.weight)

    @torch.no_grad()
    def append(self, values: Float[Tensor, " channels"], time: float) -> Float[Tensor, " d"]:
        """The state after a new observation of all channels."""
        clock, now = self._now(time)
        x = self.model.input_proj(torch.cat([values, torch.ones_like(values)])) + now
        for layer in self.layers:
            self._input, self._clock = x - now, clock
            x = layer.append(x, clock)
        return x

    @torch.no_grad()
    def at(self, time: float) -> Float[Tensor, " d"]:
        """The state at a later time, at which nothing is observed."""
        clock, now = self._now(time)
        held = torch.zeros_like(now) if self._input is None else self._input
        return self.layers[-1].at(held + now, clock)

"""Time: centring and scaling in float64, and the temporal encoding."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Clock(nn.Module):
    """The model's time ``(t - origin) / unit``, computed in float64.

    Epoch seconds, years and milliseconds all become times of order one here, before anything is rounded to float32.
    Origin
    and unit are part of the state dict but no ordinary buffers: ``model.half()`` must not round them.

    Example:
        >>> import torch
        >>> from contiformer.nn import Clock
        >>> clock = Clock()
        >>> clock.fit(torch.tensor([[1e9, 1e9 + 50, 1e9 + 100]], dtype=torch.float64))
        >>> clock(torch.tensor([[1e9 + 25]], dtype=torch.float64)).item()
        0.25
    """

    def __init__(self, origin: float = 0.0, unit: float = 1.0) -> None:
        super().__init__()
        self.origin, self.unit = float(origin), float(unit)
        if not (math.isfinite(self.origin) and math.isfinite(self.unit) and self.unit > 0):
            raise ValueError(f"origin must be finite and unit positive and finite, got {origin!r} and {unit!r}")

    def fit(self, times: Float[Tensor, "batch obs"], mask: Bool[Tensor, "batch obs"] | None = None) -> None:
        """Put the first observed time at 0 and let the longest sequence span 1."""
        wide = times.detach().double()
        seen = torch.ones_like(wide, dtype=torch.bool) if mask is None else mask
        if not bool(seen.any()):
            raise ValueError("times has no observed entry to fit the clock on")
        first = wide.masked_fill(~seen, torch.inf).amin(1)
        last = wide.masked_fill(~seen, -torch.inf).amax(1)
        span = float((last - first).max())
        if not math.isfinite(span):
            raise ValueError("times must be finite to fit the clock on")
        self.origin, self.unit = float(first.min()), span if span > 0 else 1.0

    def forward(self, times: Tensor) -> Tensor:
        """The model's time, in float64 where the device has it."""
        wide = times if times.device.type == "mps" else times.double()
        return (wide - self.origin) / self.unit

    def get_extra_state(self) -> Float[Tensor, "2"]:
        """Origin and unit, for the state dict."""
        return torch.tensor([self.origin, self.unit], dtype=torch.float64)

    def set_extra_state(self, state: Float[Tensor, "2"]) -> None:
        """Restore what :meth:`get_extra_state` gave."""
        self.origin, self.unit = (float(x) for x in state)

    def extra_repr(self) -> str:
        """Origin and unit."""
        return f"origin={self.origin:g}, unit={self.unit:g}"


class TimeEncoding(nn.Module):
    """Sinusoidal time encoding ``scale [sin(ω_k t), cos(ω_k t)]``.

    There are ``d_model / 2`` frequencies from ``low`` to ``high`` in geometric steps, in radians per unit of the
    model's time. Shapes: t [...] -> [..., d_model].

    Example:
        >>> import torch
        >>> from contiformer.nn import TimeEncoding
        >>> TimeEncoding(4)(torch.zeros(2)).tolist()
        [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    """

    scale: float = 1.0

    def __init__(self, d_model: int, low: float = 1.0, high: float = 100.0, scale: float = 1.0) -> None:
        super().__init__()
        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"the scale of the encoding must be finite and not negative, got {scale!r}")
        if scale != 1:
            # an attribute only where it says something: runs that were begun before there was a scale go on
            self.scale = float(scale)
        pairs = -(-d_model // 2)
        self.d_model = d_model
        # plain numbers, because a buffer would be rounded by model.half() and stay so
        self.frequencies = tuple(low * (high / low) ** (k / max(1, pairs - 1)) for k in range(pairs))

    def forward(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape d"]:
        """Encode times, in float32 or wider."""
        wide = torch.promote_types(t.dtype, torch.float32)
        angle = t.unsqueeze(-1) * torch.tensor(self.frequencies, dtype=wide, device=t.device)
        waves = torch.cat([angle.sin(), angle.cos()], dim=-1)[..., : self.d_model]
        return waves if self.scale == 1 else self.scale * waves

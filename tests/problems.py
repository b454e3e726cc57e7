"""Random problems that the tests share."""

import torch
from torch import Tensor, nn

from contiformer.nn import ContinuousAttention

WIDTH, HEADS = 8, 2
CLOSE = 1e-6


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sorted_times(*shape: int, span: float = 1.0) -> Tensor:
    """Distinct times, in order."""
    return span * torch.rand(*shape, dtype=torch.float64).sort(-1).values


def spaced_times(*shape: int) -> Tensor:
    """Times in order with no close pairs, so that finite differences in time are accurate; about 0 to 1."""
    steps = 0.5 + torch.rand(*shape, dtype=torch.float64)
    return (steps.cumsum(-1) - steps[..., :1]) / shape[-1]


def irregular_times(n: int, span: float = 1.0) -> Tensor:
    """Times in order of which, where there are enough, some are 1e-6 apart and some are equal."""
    times = sorted_times(n, span=span)
    for first in range(1, n - 3, 7):
        times[first + 1] = times[first] + CLOSE
        times[first + 3] = times[first + 2]
    return times.sort().values


def make_attention(seed: int = 0, **options) -> ContinuousAttention:
    torch.manual_seed(seed)
    return ContinuousAttention(WIDTH, HEADS, **options).double()


class Swing(nn.Module):
    """``x(t) = x_i + sin(speed t) - sin(speed t_i)``: as hard to resolve as one likes."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(speed))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return (self.speed * torch.cos(self.speed * t)).expand_as(x)


def largest(difference: Tensor) -> float:
    return float(difference.detach().abs().max()) if difference.numel() else 0.0

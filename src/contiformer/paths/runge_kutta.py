"""One step of an explicit Runge-Kutta method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Method = Literal["euler", "midpoint", "rk4"]


def runge_kutta_step(
    slope: Callable[[Tensor, float], Tensor], x: Tensor, h: Tensor | None = None, method: Method = "rk4"
) -> Tensor:
    """The solution of ``dx/dt = f(t, x)`` at ``t + h``, from x at t.

    Args:
        slope: ``f(t + c h, x)`` as a function of x and c, which is 0, 1/2 or 1.
        x: the state at t.
        h: the length of the step, which broadcasts with x; None: ``slope`` gives ``h f`` already.
        method: "rk4" is the classical method of order 4.

    Example:
        >>> import torch
        >>> from contiformer.paths.runge_kutta import runge_kutta_step
        >>> x = runge_kutta_step(lambda x, c: x, torch.ones(1, dtype=torch.float64), torch.tensor(0.1))
        >>> round(x.item(), 6)
        1.105171
    """

    def moved(by: Tensor, share: float) -> Tensor:
        return torch.add(x, by, alpha=share) if h is None else torch.addcmul(x, h, by, value=share)

    first = slope(x, 0.0)
    if method == "euler":
        return moved(first, 1.0)
    second = slope(moved(first, 0.5), 0.5)
    if method == "midpoint":
        return moved(second, 1.0)
    third = slope(moved(second, 0.5), 0.5)
    fourth = slope(moved(third, 1.0), 1.0)
    return moved(first + fourth + 2 * (second + third), 1 / 6)

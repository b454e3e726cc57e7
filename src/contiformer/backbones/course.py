"""The steps through several intervals in one line, as a kernel takes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Course:
    """Which interval each step of a sequence lies in, and the how many-th it is there.

    Attributes:
        interval, number: [B, T]; behind the last step of a sequence they mean nothing, but may be looked up.
        total: [B], how many steps a sequence has.
        until: [B, Q + 1], how many steps there are before each interval and behind the last.

    Example:
        >>> course = Course.of(torch.tensor([[2, 0, 1], [1, 0, 0]]))
        >>> course.interval.tolist(), course.number.tolist()
        ([[0, 0, 2], [0, 2, 2]], [[0, 1, 0], [0, 0, 1]])
        >>> course.total.tolist(), course.until.tolist()
        ([3, 1], [[0, 2, 2, 3], [0, 1, 1, 1]])
    """

    interval: Int[Tensor, "batch steps"]
    number: Int[Tensor, "batch steps"]
    total: Int[Tensor, " batch"]
    until: Int[Tensor, "batch bounds"]

    @classmethod
    def of(cls, count: Int[Tensor, "batch intervals"]) -> Course:
        """From the number of steps in each interval."""
        until = torch.nn.functional.pad(count.cumsum(1), (1, 0))
        total = until[:, -1]
        steps = torch.arange(int(total.max()) if len(total) else 0, device=count.device).expand(len(total), -1)
        ends = until[:, 1:].contiguous()
        interval = torch.searchsorted(ends, steps.contiguous(), right=True).clamp(max=max(count.shape[1] - 1, 0))
        return cls(interval, steps - until.gather(1, interval), total, until)

    @classmethod
    def apart(cls, count: Int[Tensor, "batch intervals"]) -> Course:
        """The same where each interval has as many places as the longest, [B, Q steps] in all."""
        batch, intervals = count.shape
        most = int(count.max()) if count.numel() else 0
        place = torch.arange(intervals * most, device=count.device).expand(batch, -1)
        until = torch.arange(intervals + 1, device=count.device).expand(batch, -1) * most
        return cls(place // max(most, 1), place % max(most, 1), until[:, -1], until)

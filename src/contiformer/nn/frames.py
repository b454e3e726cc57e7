"""Pictures as points of a series."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class FrameEncoder(nn.Module):
    """Two convolutions and a linear map: features of each picture in a series, one picture at a time.

    Shapes: pixels [..., height * width], row by row -> [..., features].

    Example:
        >>> FrameEncoder(24, 24, 32)(torch.rand(2, 50, 24 * 24)).shape
        torch.Size([2, 50, 32])
    """

    def __init__(self, height: int, width: int, features: int) -> None:
        super().__init__()
        self.height, self.width = height, width
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 12, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2, 2, ceil_mode=True),
            nn.Conv2d(12, 12, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2, ceil_mode=True),
            nn.Flatten(1),
        )
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, 1, height, width)).shape[1]
        self.out = nn.Sequential(nn.Linear(flat, features), nn.ReLU(), nn.Linear(features, features))

    def forward(self, pixels: Float[Tensor, "*shape pixels"]) -> Float[Tensor, "*shape features"]:
        """Features of each picture."""
        shape = pixels.shape[:-1]
        pictures = pixels.reshape(-1, 1, self.height, self.width)
        return self.out(self.convolutions(pictures)).view(*shape, -1)

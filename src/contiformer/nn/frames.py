"""Pictures as points of a series."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from contiformer.nn.dropout import Dropout


class FrameEncoder(nn.Module):
    """Two convolutions and two linear maps: features of each picture in a series, one picture at a time.

    ``W2 relu(W1 drop(relu(conv'(relu(conv(picture))))))``, both convolutions with a stride of 2. The stride of the
    first makes it cheap: at full resolution the activations of all pictures of a batch do not fit into a cache, and a
    training step spent two thirds of its time on them. Without the dropout the first linear map learns the noise of the
    training pictures by heart.

    Shapes: pixels [..., height * width], row by row -> [..., features].

    Example:
        >>> import torch
        >>> from contiformer.nn.frames import FrameEncoder
        >>> FrameEncoder(24, 24, 32)(torch.rand(2, 50, 24 * 24)).shape
        torch.Size([2, 50, 32])
    """

    def __init__(self, height: int, width: int, features: int, *, dropout: float = 0.3) -> None:
        super().__init__()
        self.height, self.width = height, width
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(1),
        )
        # each stride halves, rounding up
        flat = 16 * -(-height // 4) * -(-width // 4)
        self.out = nn.Sequential(Dropout(dropout), nn.Linear(flat, features), nn.ReLU(), nn.Linear(features, features))

    def forward(self, pixels: Float[Tensor, "*shape pixels"]) -> Float[Tensor, "*shape features"]:
        """Features of each picture."""
        shape = pixels.shape[:-1]
        pictures = pixels.reshape(-1, 1, self.height, self.width)
        return self.out(self.convolutions(pictures)).view(*shape, -1)

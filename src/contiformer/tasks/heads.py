"""Output heads: a value, a normal distribution, or quantiles for each channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, softplus

Distribution = Literal["point", "gaussian", "quantiles"]
#: Inputs of a head.
Reads = Literal["hidden", "states", "forecasts"]
#: Standard deviations below this share of a channel's own are not believed.
SMALLEST_STD = 1e-3
#: Half of the interval that holds 90 % of a normal law, in standard deviations.
INSIDE_90 = 1.6448536269514722
ENOUGH_TO_CALIBRATE = 50


class ValueLaw(nn.Module):
    """Law of each channel, given its numbers: the location first, then the spread or the quantiles in their order.

    Args:
        channels: C.
        law: "point": the location, with the squared error as loss; "gaussian": mean and spread, with the negative
            log-likelihood; "quantiles": the mean and the quantiles, with the squared error of the mean plus the mean
            pinball loss of the quantiles.
        quantiles: for the law of that name, increasing.
        smallest_std: of the gaussian law, for each channel; None: :data:`SMALLEST_STD`.
    """

    std_factor: Tensor
    smallest: Tensor

    def __init__(
        self,
        channels: int,
        *,
        law: Distribution = "point",
        quantiles: Sequence[float] = (),
        smallest_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if smallest_std is not None and (len(smallest_std) != channels or not min(smallest_std) > 0):
            raise ValueError(f"smallest_std must be {channels} positive numbers, got {smallest_std}")
        if law not in get_args(Distribution):
            raise ValueError(f"law must be one of {', '.join(get_args(Distribution))}, got {law!r}")
        if law == "quantiles" and (
            not quantiles or list(quantiles) != sorted(set(quantiles)) or not 0 < quantiles[0] <= quantiles[-1] < 1
        ):
            raise ValueError(f"quantiles must increase and lie between 0 and 1, got {quantiles}")
        self.law, self.channels, self.quantiles = law, channels, tuple(quantiles)
        self.numbers = {"point": 1, "gaussian": 2, "quantiles": 1 + len(quantiles)}[law]
        self.register_buffer("std_factor", torch.ones(()))
        smallest = torch.full((channels,), SMALLEST_STD) if smallest_std is None else torch.tensor(list(smallest_std))
        self.register_buffer("smallest", smallest[:, None].to(self.std_factor.dtype), persistent=False)

    def losses(
        self, said: Float[Tensor, "batch query channels numbers"], truth: Float[Tensor, "batch query channels"]
    ) -> Float[Tensor, "batch query channels"]:
        """The loss of each value."""
        if self.law == "point":
            return (said[..., 0] - truth).square()
        if self.law == "gaussian":
            return gaussian_loss(said[..., 0], said[..., 1], truth)
        level = torch.tensor(self.quantiles, device=said.device, dtype=said.dtype)
        miss = truth.unsqueeze(-1) - said[..., 1:]
        pinball = torch.maximum(level * miss, (level - 1) * miss).mean(-1)
        return (said[..., 0] - truth).square() + pinball

    def location(self, said: Tensor) -> Float[Tensor, "batch query channels"]:
        """The value itself: the mean."""
        return said[..., 0]

    def std(self, said: Tensor) -> Float[Tensor, "batch query channels"] | None:
        """The calibrated standard deviation, for the gaussian law."""
        return said[..., 1] * self.std_factor if self.law == "gaussian" else None

    @torch.no_grad()
    def calibrate(self, deviations: Float[Tensor, " n"]) -> None:
        """Let the interval of 90 % hold 90 %, given ``|truth - mean| / std`` as it is, where there are enough to tell.

        One factor for all channels: errors have heavier tails than the normal law, and second moments, or few values of
        one channel, say more about the tails than about the interval.
        """
        if len(deviations) >= ENOUGH_TO_CALIBRATE:
            factor = float(np.quantile(deviations.numpy(), 0.9)) / INSIDE_90
            self.std_factor.mul_(min(10.0, max(0.1, factor)))


class ValueHead(ValueLaw):
    """Distribution of each channel, from the state and local features of the channel.

    ``h = gelu(A_c z + B f_c + b_c)`` and a linear map to the numbers that the law needs, with ``f_c`` [F] the features
    of channel c. Of quantiles they are the mean, the lowest quantile and the steps up to the others, so they never
    cross.

    The last layer begins with zeros: before training the answer is ``base``, what the caller adds to the location.

    Published forecasters have less: with ``reads="states"`` the numbers are a linear map of the states, and with
    "forecasts" they are the first C numbers of the states, where a backbone has put its own forecasts.

    Args:
        d_model: width of the states.
        channels: C.
        features: F, 0 for none.
        law, quantiles, smallest_std: see :class:`ValueLaw`.
        hidden: numbers for each channel between the two maps.
        reads: "hidden": the two maps; "states" or "forecasts": see above, without features.

    Example:
        >>> import torch
        >>> from contiformer.tasks import ValueHead
        >>> head = ValueHead(8, channels=2, law="gaussian")
        >>> out = head(torch.randn(1, 5, 8))
        >>> head.location(out).shape, head.std(out).shape
        (torch.Size([1, 5, 2]), torch.Size([1, 5, 2]))
    """

    def __init__(
        self,
        d_model: int,
        channels: int,
        features: int = 0,
        *,
        law: Distribution = "point",
        quantiles: tuple[float, ...] = (),
        hidden: int = 16,
        reads: Reads = "hidden",
        smallest_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__(channels, law=law, quantiles=quantiles, smallest_std=smallest_std)
        if reads not in get_args(Reads):
            raise ValueError(f"reads must be one of {', '.join(get_args(Reads))}, got {reads!r}")
        if reads != "hidden" and features:
            raise ValueError(f"reads must be 'hidden' where there are features, got {reads!r}")
        if reads == "forecasts" and law != "point":
            raise ValueError(f"law must be 'point' where a head reads forecasts, got {law!r}")
        self.reads = reads
        if reads == "states":
            self.from_state = nn.Linear(d_model, channels * self.numbers)
        if reads == "hidden":
            self.from_state = nn.Linear(d_model, channels * hidden)
            self.from_features = nn.Linear(features, hidden, bias=False) if features else None
            self.out = nn.Parameter(torch.zeros(channels, hidden, self.numbers))
            self.out_bias = nn.Parameter(torch.zeros(channels, self.numbers))

    def forward(
        self,
        states: Float[Tensor, "batch query d"],
        features: Float[Tensor, "batch query channels features"] | None = None,
        base: Float[Tensor, "batch query channels"] | None = None,
    ) -> Float[Tensor, "batch query channels numbers"]:
        """The numbers of the law: the location first, then the spread or the quantiles in their order."""
        raw = self._raw(states, features)
        location = raw[..., :1] if base is None else raw[..., :1] + base.unsqueeze(-1)
        if self.law == "point":
            return location
        if self.law == "gaussian":
            return torch.cat([location, _positive(raw[..., 1:], self.smallest)], dim=-1)
        # from the lowest quantile upwards, centred where the mean is before training
        start = location - len(self.quantiles) / 2 + raw[..., 1:2]
        steps = torch.cat([torch.zeros_like(start), _positive(raw[..., 2:])], dim=-1)
        return torch.cat([location, start + steps.cumsum(-1)], dim=-1)

    def _raw(self, states: Tensor, features: Tensor | None) -> Float[Tensor, "batch query channels numbers"]:
        if self.reads == "forecasts":
            return states[..., : self.channels].unsqueeze(-1)
        h = self.from_state(states).unflatten(-1, (self.channels, -1))
        if self.reads == "states":
            return h
        if self.from_features is not None:
            assert features is not None
            h = h + self.from_features(features)
        return torch.einsum("bqch,chn->bqcn", gelu(h), self.out) + self.out_bias


def _positive(raw: Tensor, smallest: Tensor | float = SMALLEST_STD) -> Tensor:
    """Positive, and 1 where raw is 0."""
    return softplus(raw + math.log(math.e - 1)) + smallest


def gaussian_loss(mean: Tensor, std: Tensor, truth: Tensor) -> Tensor:
    """``log σ + (x - μ)² / 2σ² + log √2π``."""
    return std.log() + ((truth - mean) / std).square() / 2 + math.log(2 * math.pi) / 2


def masked_sums(
    each: Float[Tensor, "batch query channels"], known: Bool[Tensor, "batch query channels"], weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum over the known values, weighted by series, and the sum of the weights."""
    share = known * weight[:, None, None]
    return (torch.where(known, each, 0.0) * share).sum(), share.sum()

"""What every model of the literature looks like from outside: a batch of series and times in, states out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from contiformer.data.series_set import SeriesSet

#: Gaps that differ by less than this share of the usual gap are the ticks of one clock.
_SAME_GAP = 1e-3


@dataclass(frozen=True)
class Capabilities:
    """What a backbone can do; data beyond it are refused before training.

    Attributes:
        causal: the state at time t depends on nothing observed after t.
        irregular: times may be anywhere; otherwise all gaps have to be equal.
        missing: channels may be missing at some points.
    """

    causal: bool = False
    irregular: bool = True
    missing: bool = True


class Backbone(nn.Module, ABC):
    """Base class of all backbones.

    A subclass takes ``input_size`` (channels) first and its own options after it, sets :attr:`d_model`,
    :attr:`capabilities` and :attr:`citation`, and computes states. Tasks know nothing else about it.
    """

    d_model: int
    capabilities: Capabilities = Capabilities()
    #: The paper it is from.
    citation: str

    @abstractmethod
    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at ``query_times``, by default at the times of the batch, where rows of padding may be anything."""

    def extra_loss(self) -> Float[Tensor, " batch"] | None:
        """What training has to add to the loss of each series of the last batch, such as a KL term; by default none."""
        return None


def check_capabilities(name: str, capabilities: Capabilities, data: SeriesSet) -> None:
    """Refuse data that the backbone cannot take.

    Raises:
        DataError: naming the first series that is beyond it.
    """
    if capabilities.irregular and capabilities.missing:
        return
    usual = None
    for number, series in enumerate(data):
        which = f"series {number if series.id is None else repr(series.id)}"
        if not capabilities.missing and not series.observed.all():
            raise DataError(
                f"{which} has missing values, and the backbone {name!r} needs every channel at every time",
                remedy="fill them in, or use a backbone that takes missing channels, such as 'contiformer'",
            )
        gaps = np.diff(series.times)
        if capabilities.irregular or not len(gaps):
            continue
        usual = float(np.median(gaps)) if usual is None else usual
        if usual <= 0 or np.abs(gaps - usual).max() > _SAME_GAP * usual:
            raise DataError(
                f"{which} has irregular times, and the backbone {name!r} needs a regular grid",
                remedy="resample the data, or use a backbone that takes irregular times, such as 'contiformer'",
            )

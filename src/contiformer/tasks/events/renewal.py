"""Baselines of events, fitted in closed form: the homogeneous Poisson process and the Markov renewal process."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from contiformer.data.batch import EventBatch
from contiformer.data.events import EventSet
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.intensities import mean_rates
from contiformer.tasks.events.intensity import IntensityModel, Memory, PerEvent, PerMoment, PerType

#: Events of a type that count in its share beside the observed ones.
PSEUDO_COUNT = 0.5


class RenewalModel(IntensityModel):
    """``λ_k(t_i + s) = h(s) P[k_i, k]``: waits are independent, and a type depends on the type before it.

    The hazard h is constant within pieces between quantiles of the training waits, and the last piece has no end. Both
    factors are fitted by maximum likelihood with pseudo-counts: one event for each piece at the mean rate, and for each
    previous type as many events as there are types, in their overall shares.

    Args:
        pieces: of the hazard, at most; few waits have fewer.

    Shapes: memory "last" [B, L], the type of each event.
    """

    #: Pieces by default, and whether types depend on the type before.
    default_pieces: ClassVar[int] = 32
    by_last_type: ClassVar[bool] = True
    edges: Tensor

    def __init__(self, scaling: EventScaling, *, pieces: int | None = None) -> None:
        super().__init__()
        count = self.default_pieces if pieces is None else pieces
        if not 1 <= count <= 10_000:
            raise ValueError(f"pieces must be from 1 to 10,000, got {pieces}")
        self.num_types = len(scaling.counts)
        shares = mean_rates(scaling)
        self.register_buffer("edges", torch.ones(count - 1))
        self.log_hazard = nn.Parameter(torch.zeros(count))
        self.log_share = nn.Parameter((shares / shares.sum()).log().repeat(self.num_types, 1))

    @classmethod
    def build(cls, scaling: EventScaling, options: dict[str, Any]) -> Self:
        """Without sizes."""
        return cls(scaling, **{k: x for k, x in options.items() if k not in ("d_model", "n_layers", "dropout")})

    @torch.no_grad()
    def fit_directly(self, training: EventSet) -> bool:
        """Counts by exposure, and shares of types."""
        waits = np.concatenate([np.diff(one.times) for one in training])
        before = np.concatenate([one.types[:-1] for one in training])
        after = np.concatenate([one.types[1:] for one in training])
        if len(self.edges):
            used = int(np.clip(np.sqrt(len(waits)) / 2, 1, len(self.log_hazard)))
            inner = np.unique(np.quantile(waits, np.arange(1, used) / used, method="inverted_cdf"))
            inner = inner[inner > 0] if (inner > 0).any() else np.ones(1)
            # pieces that are not used have no length
            inner = np.append(inner, np.full(len(self.edges) - len(inner), inner[-1]))
            self.edges.copy_(torch.from_numpy(inner))
        passed = torch.from_numpy(waits).to(self.log_hazard)
        exposure = self._exposure(passed).double().sum(0)
        count = torch.bincount(torch.searchsorted(self.edges, passed), minlength=len(self.log_hazard))
        self.log_hazard.copy_(((count + 1) / (exposure + waits.mean())).log())
        pairs = np.zeros((self.num_types, self.num_types))
        np.add.at(pairs, (before, after), 1)
        overall = pairs.sum(0) + PSEUDO_COUNT
        prior = self.num_types * overall / overall.sum()
        counts = pairs + prior if self.by_last_type else np.broadcast_to(prior, pairs.shape)
        self.log_share.copy_(torch.from_numpy(np.log(counts / counts.sum(1, keepdims=True))))
        return True

    def remember(self, events: EventBatch) -> Memory:
        return Memory({"last": events.types})

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        hazard = self.log_hazard[self._piece(elapsed)]
        return hazard.unsqueeze(-1) + self.log_share[memory["last"]].log_softmax(-1).unsqueeze(2)

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        return self._exposure(elapsed.to(self.log_hazard.dtype)) @ self.log_hazard.exp()

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """The largest hazard of a piece that the interval touches."""
        piece = torch.arange(len(self.log_hazard), device=low.device)
        first, last = (self._piece(x).unsqueeze(-1) for x in (low, high))
        inside = (piece >= first) & (piece <= last)
        return torch.where(inside, self.log_hazard.exp(), 0.0).amax(-1)

    def _piece(self, elapsed: Tensor) -> Tensor:
        # a wait that ends on an edge belongs to the piece before it
        return torch.searchsorted(self.edges.to(elapsed.dtype), elapsed.contiguous())

    def _exposure(self, elapsed: Tensor) -> Tensor:
        """[..., pieces]: the part of each time that lies within each piece."""
        start = torch.cat([self.edges.new_zeros(1), self.edges]).to(elapsed.dtype)
        width = torch.cat([start.diff(), start.new_full((1,), torch.inf)])
        return torch.minimum((elapsed.unsqueeze(-1) - start).clamp(min=0), width)


class PoissonModel(RenewalModel):
    """``λ_k(t) = λ_k``: the homogeneous Poisson process, the rates being events per time."""

    default_pieces: ClassVar[int] = 1
    by_last_type: ClassVar[bool] = False

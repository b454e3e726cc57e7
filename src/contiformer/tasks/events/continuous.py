"""The intensity read from a backbone's continuous output, at every time."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from contiformer.data.batch import Batch, EventBatch
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.encoder import APART, EventEncoder
from contiformer.tasks.events.intensities import SoftplusRates, inverse_softplus, mean_rates
from contiformer.tasks.events.intensity import IntensityModel, Memory, PerEvent, PerMoment, PerType

#: Scales of the elapsed time that the intensity sees, in mean waits.
_SCALES = (0.01, 0.1, 1.0, 10.0)
#: Points of histories that are shown to the backbone at once.
_AT_ONCE = 2**16


class ContinuousModel(SoftplusRates, IntensityModel):
    """``λ_k(t) = β_k softplus((w_k·(LN(h(t)) + E φ(t - t_j)) + b_k) / β_k)`` with the backbone's state h at t itself.

    The history of h(t) is all events before t; ``φ(s) = log(1 + s / c)`` for a few scales c lets the intensity change
    quickly just after an event. After a wait as long as the longest training sequence h rests. Up to the next event one
    pass over the sequence gives h at any number of times; beyond it, which prediction asks for, every event's own
    history is a pass of its own.
    """

    scales: Tensor
    #: A moment costs a look at the whole history: see what a few pieces say before the next are asked for.
    pieces_at_once = 8

    def __init__(self, encoder: EventEncoder, scaling: EventScaling) -> None:
        super().__init__()
        d = encoder.backbone.d_model
        self.encoder, self.num_types = encoder, len(scaling.counts)
        self.norm = nn.LayerNorm(d)
        self.linear = nn.Linear(d, self.num_types)
        nn.init.normal_(self.linear.weight, std=0.5 * d**-0.5)
        self.linear.bias.data = inverse_softplus(mean_rates(scaling))
        self.elapsed = nn.Parameter(torch.zeros(len(_SCALES), d))
        self.log_softness = nn.Parameter(torch.zeros(self.num_types))
        self.register_buffer("scales", torch.tensor(_SCALES), persistent=False)

    @property
    def longest_span(self) -> float:
        return self.encoder.backbone.longest_span

    def remember(self, events: EventBatch) -> Memory:
        """The whole history, and each event's place in it."""
        tokens = self.encoder.tokens(events)
        after = torch.cat([events.times[:, 1:], torch.full_like(events.times[:, :1], torch.inf)], 1)
        known = torch.cat([events.mask[:, 1:], torch.zeros_like(events.mask[:, :1])], 1)
        row = torch.arange(events.times.shape[1], device=events.times.device).expand_as(events.times)
        wait = torch.where(known, after - events.times, torch.inf)
        return Memory({"time": tokens.times, "row": row, "wait": wait}, tokens)

    def inside(self, memory: Memory, elapsed: PerMoment) -> PerType:
        gone = elapsed.detach().to(memory["time"].dtype).clamp(max=self.encoder.span)
        # after this event and before the next one, also where all three are at one time
        at = memory["time"].unsqueeze(-1) + gone / self.encoder.span + APART / 2
        if bool((elapsed > memory["wait"].unsqueeze(-1) * (1 + 1e-6)).any()):
            states = self._alone(memory, at)
        else:
            last = memory["time"] + memory["wait"] / self.encoder.span + APART / 2
            at = torch.minimum(at, last.unsqueeze(-1))
            states = self.encoder.backbone(memory.whole, at.flatten(1)).unflatten(1, at.shape[1:])
        recent = torch.log1p(elapsed.unsqueeze(-1) / self.scales.to(elapsed.dtype)) @ self.elapsed
        return self.linear(self.norm(states) + recent) / self.log_softness.exp()

    def _alone(self, memory: Memory, at: Tensor) -> Float[Tensor, "batch events moments d"]:
        """Each event's history by itself."""
        tokens: Batch = memory.whole
        batch, rows = at.shape[:2]
        length = tokens.times.shape[1]
        owner = torch.arange(batch, device=at.device).repeat_interleave(rows)
        row, moments = memory["row"].flatten(), at.flatten(0, 1)
        size = max(1, _AT_ONCE // max(1, length + at.shape[2]))
        parts = []
        for first in range(0, len(owner), size):
            mine, until = owner[first : first + size], row[first : first + size]
            longest = int(until.max()) + 1
            seen = torch.arange(longest, device=at.device) <= until.unsqueeze(-1)
            observed = tokens.observed[mine, :longest] & seen.unsqueeze(-1)
            values = torch.where(observed, tokens.values[mine, :longest], 0.0)
            history = Batch(tokens.times[mine, :longest], values, observed, until + 1)
            parts.append(self.encoder.backbone(history, moments[first : first + size]))
        return torch.cat(parts).unflatten(0, (batch, rows))

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """By Cauchy and Schwarz: a normalised state is no longer than √d, and every φ lies between its two ends.

        ``w·(γ n + β) ≤ |w γ| √d + w·β`` for every h.
        """
        weight = self.linear.weight
        most = (weight * self.norm.weight).norm(dim=-1) * weight.shape[1] ** 0.5
        most = most + weight @ self.norm.bias + self.linear.bias
        ends = torch.log1p(torch.stack([low, high], -1).unsqueeze(-1) / self.scales.to(low.dtype))
        pull = self.elapsed @ weight.T
        recent = (ends.unsqueeze(-1) * pull).amax(2).sum(-2)
        softness = self.log_softness.exp()
        return (softness * softplus((most + recent) / softness)).sum(-1)

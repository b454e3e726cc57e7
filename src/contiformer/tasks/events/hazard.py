"""The piecewise exponential hazard: a flexible intensity whose integral has a closed form."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.intensities import StateIntensity, States, exponential_mean, mean_rates
from contiformer.tasks.events.intensity import Memory, PerEvent, PerMoment, PerType
from contiformer.tasks.events.piecewise_linear import PiecewiseLinear, wait_knots

#: Polynomials by which a state changes the hazard.
SHAPES = 5
#: Shares of types that come as they usually do; the first is that of the training.
SURPRISES = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15)


class HazardIntensity(StateIntensity):
    """``log λ(t_j + s)`` is linear between knots of the elapsed time s, and its values there come from ``h(t_j)``.

        λ(t_j + s) = exp(Σ_m φ_m(s) a_m),  a = P A h(t_j) + b,
        λ_k = λ ((1 - ε) softmax_k(y·E_k / √d + c_k) + ε f_k),  y = x + W gelu(x + Σ_m φ_m(s) e_m),  x = V h(t_j)

    with hat functions ``φ_m`` on knots 0 = s_0 < s_1 < ... at quantiles of the waits in the training data, and constant
    after the last knot. The columns of P are the first few polynomials on the knots: a state moves level, slope and
    curvature of the hazard, not every knot by itself. ``E_k`` is the encoder's embedding of type k (:meth:`tie`): that
    an event repeats itself is then learned once, not once for each type. The integral of ``exp(linear)`` has a closed
    form, so the likelihood is exact; λ never becomes 0, so the next event comes with probability 1. With probability ε,
    chosen on the validation sequences (:meth:`calibrate`), the type is drawn from the frequencies ``f_k`` of the
    training data. The bias b begins as the hazard of their waits: an untrained model is a renewal process.
    """

    shapes: Tensor
    usual: Tensor
    surprise: Tensor

    def __init__(self, d_model: int, scaling: EventScaling) -> None:
        super().__init__(d_model, scaling)
        places = wait_knots(scaling)
        self.curve = PiecewiseLinear(places)
        self.shape = nn.Linear(d_model, SHAPES, bias=False)
        nn.init.normal_(self.shape.weight, std=0.1 * d_model**-0.5)
        self.level = nn.Parameter(torch.tensor(_log_hazard(scaling, places), dtype=torch.float32))
        # [SHAPES, M], Legendre polynomials on the knots, counted evenly from -1 to 1
        shapes = np.polynomial.legendre.legvander(np.linspace(-1, 1, len(places)), SHAPES - 1).T
        self.register_buffer("shapes", torch.tensor(shapes, dtype=torch.float32), persistent=False)
        self.moment = nn.Parameter(torch.zeros(len(places), d_model))
        self.hidden, self.mix = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        nn.init.zeros_(self.mix.weight)
        self.kind = nn.Linear(d_model, self.num_types)
        nn.init.normal_(self.kind.weight)
        self.kind.bias.data = mean_rates(scaling).log()
        self.register_buffer("usual", mean_rates(scaling).log(), persistent=False)
        self.register_buffer("surprise", torch.tensor(SURPRISES[0]))

    def tie(self, embedding: nn.Embedding) -> None:
        """Score types by the encoder's embedding."""
        self.kind.weight = embedding.weight

    def calibrate(self, loss: Callable[[], float]) -> None:
        """Choose ε by the loss."""
        costs = []
        for share in SURPRISES:
            self.surprise.fill_(share)
            costs.append(loss())
        self.surprise.fill_(SURPRISES[int(np.argmin(costs))])

    def rows(self, states: States, times: PerEvent) -> dict[str, Tensor]:
        """The logarithms of the intensity at the knots, its integrals up to them, and the state."""
        level = self.level + self.shape(states) @ self.shapes
        pieces = exponential_mean(level[..., :-1], level[..., 1:]) * self.curve.knots.to(level.dtype).diff()
        upto = torch.cat([torch.zeros_like(level[..., :1]), pieces.cumsum(-1)], -1)
        return {"level": level, "upto": upto, "state": self.hidden(states)}

    def log_total(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        """The logarithm of the intensity of any event."""
        low, share = self.curve.locate(elapsed)
        return torch.lerp(memory["level"].gather(-1, low), memory["level"].gather(-1, low + 1), share)

    def total(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        """The intensity of any event."""
        return self.log_total(memory, elapsed).exp()

    def log_rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        """The intensity of any event times the shares of the types, as logarithms."""
        x = memory["state"].unsqueeze(2)
        y = x + self.mix(nn.functional.gelu(x + self.curve.of_table(self.moment, elapsed)))
        told = self.kind(y * self.d_model**-0.5).log_softmax(-1)
        usual = self.usual.to(told.dtype).log_softmax(-1)
        kinds = torch.logaddexp(torch.log1p(-self.surprise) + told, self.surprise.log() + usual)
        return self.log_total(memory, elapsed).unsqueeze(-1) + kinds

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        low, share = self.curve.locate(elapsed)
        knots = self.curve.knots.to(elapsed.dtype)
        first = memory["level"].gather(-1, low)
        now = torch.lerp(first, memory["level"].gather(-1, low + 1), share)
        inside = share * (knots[low + 1] - knots[low])
        beyond = (elapsed - knots[-1]).clamp(min=0)
        return memory["upto"].gather(-1, low) + exponential_mean(first, now) * inside + now.exp() * beyond

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """The largest at the ends and at the knots between them."""
        ends = self.log_total(memory, torch.stack([low, high], -1)).amax(-1)
        knots = self.curve.knots.to(low.dtype)
        between = (knots > low.unsqueeze(-1)) & (knots < high.unsqueeze(-1))
        inner = memory["level"].masked_fill(~between, -torch.inf).amax(-1)
        return torch.maximum(ends, inner).exp()


def _log_hazard(scaling: EventScaling, places: list[float]) -> list[float]:
    """Deaths over time at risk around each knot, by the quantiles of the waits."""
    waits = np.array(scaling.waits)
    edges = np.concatenate([[0.0], (np.array(places[:-1]) + np.array(places[1:])) / 2, [np.inf]])
    rates = []
    for start, stop in pairwise(edges):
        ended = ((waits > start) & (waits <= stop)).sum()
        at_risk = np.clip(waits - start, 0, stop - start).sum()
        rates.append((ended + 0.5) / (at_risk + 0.5))
    return np.log(rates).tolist()

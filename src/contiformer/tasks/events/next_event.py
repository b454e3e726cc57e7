"""The next event: its expected time, quantiles and type, and samples by thinning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.paths.quadrature import gauss_legendre, running_integrals
from contiformer.tasks.events.intensity import IntensityModel, Memory, PerEvent, PerMoment

#: The first piece of the wait that is integrated over, and the longest wait that is looked at, in mean waits.
_SHORTEST, _LONGEST = 2.0**-8, 2.0**40
#: Numbers in the largest array that is made at once.
_AT_ONCE = 2**22
#: Pieces in which the bound is looked for: the first one in mean waits, and how much longer each next one is.
_FIRST_PIECE, _LONGER = 2.0**-6, 1.5
_MOST_TRIES = 1_000_000
_LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class Grid:
    """The grid over waits: pieces whose lengths double, with Gauss–Legendre points in each.

    Attributes:
        nodes: points in each piece.
        per_doubling: pieces until the wait has doubled.
        longest: pieces are added until so many mean waits at the latest.
        left: or until the survival probability is so small in the whole batch. The number of pieces depends on batch
            mates, so where results must not, this probability times its wait has to be negligible.
    """

    nodes: int = 8
    per_doubling: int = 2
    longest: float = _LONGEST
    left: float = 1e-10


#: Good to about six digits; and for training, where two are enough.
FINE, COARSE = Grid(), Grid(nodes=4, per_doubling=1, longest=2.0**10, left=1e-7)


@dataclass(frozen=True)
class NextEvent:
    """The predicted event after each of the given ones, in scaled time.

    Attributes:
        mean: the expected wait, ``∫ s p(s) ds / ∫ p(s) ds``.
        mass: the probability that there is a next event at all (1 unless the intensity dies out).
        kinds: ``λ_k / λ`` at the expected time, the paper's rule.
        mixture: the probability of each type over all waits, ``∫ λ_k(s) / λ(s) p(s) ds / ∫ p(s) ds``, where asked for.
        median: the median wait, given that there is a next event, to three digits, where asked for.

    Example:
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import build_model, expect
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> said = expect(model, model.remember(collate_events(data)), median=True)
        >>> [[round(wait, 2) for wait in row] for row in (said.mean[0].tolist(), said.median[0].tolist())]
        [[1.0, 1.0, 1.0], [0.69, 0.69, 0.69]]
    """

    mean: PerEvent
    mass: PerEvent
    kinds: Float[Tensor, "batch events types"]
    mixture: Float[Tensor, "batch events types"] | None = None
    median: PerEvent | None = None


def _edges(grid: Grid) -> list[float]:
    """0, and from there on in pieces that grow."""
    doublings = math.log2(grid.longest / _SHORTEST)
    return [0.0] + [_SHORTEST * 2.0 ** (n / grid.per_doubling) for n in range(int(doublings * grid.per_doubling) + 1)]


def expect(
    model: IntensityModel, memory: Memory, grid: Grid = FINE, *, mixture: bool = False, median: bool = False
) -> NextEvent:
    """Integrate over the wait until nothing is left: ``E[s] = ∫_0^∞ exp(-Λ(s)) ds`` for a proper law.

    Where the intensity dies out, a share ``exp(-Λ(∞))`` of the probability has no next event; the mean is then that of
    the waits that end.
    """
    hazard = _zeros(model, memory)
    (batch, events), dtype, device = hazard.shape, hazard.dtype, hazard.device
    rule = (*gauss_legendre(grid.nodes), running_integrals(grid.nodes))
    x, w, upto = (torch.as_tensor(part, dtype=dtype, device=device) for part in rule)
    edges = torch.tensor(_edges(grid), dtype=dtype, device=device)
    at_once = max(1, _AT_ONCE // max(1, batch * events * grid.nodes * model.width))
    at_once = min(at_once, model.pieces_at_once)
    mean, kinds, middle = torch.zeros_like(hazard), None, torch.zeros_like(hazard)
    for first in range(0, len(edges) - 1, at_once):
        ends = edges[first : first + at_once + 1]
        length, begun = ends.diff().unsqueeze(-1), hazard
        moments = (ends[:-1, None] + length * x).flatten().expand(batch, events, -1)
        rate = model.total(memory, moments).unflatten(-1, (-1, grid.nodes))
        closed = model.integral(memory, torch.cat([moments, ends[-1:].expand(batch, events, 1)], -1))
        if closed is None:
            after = hazard.unsqueeze(-1) + ((rate @ w) * length.squeeze(-1)).cumsum(-1)
            before = torch.cat([hazard.unsqueeze(-1), after[..., :-1]], -1)
            inner, hazard = before.unsqueeze(-1) + length * (rate @ upto.T), after[..., -1]
        else:
            inner, hazard = closed[..., :-1].unflatten(-1, (-1, grid.nodes)), closed[..., -1]
        density = (rate * torch.exp(-inner) * (w * length)).flatten(2)
        mean = mean + (density * moments).sum(-1)
        if mixture:
            part = torch.einsum("bem,bemk->bek", density, model.log_rates(memory, moments).softmax(-1))
            kinds = part if kinds is None else kinds + part
        if median:
            passed = torch.cat([begun.unsqueeze(-1), inner.flatten(2), hazard.unsqueeze(-1)], -1)
            times = torch.cat([ends[:1].expand(batch, events, 1), moments, ends[-1:].expand(batch, events, 1)], -1)
            middle = torch.where((begun < _LOG_2) & (hazard >= _LOG_2), _crossing(times, passed), middle)
        if not bool((hazard.detach() < -math.log(grid.left)).any()):
            break
    mass = -torch.expm1(-hazard)
    safe = mass.clamp(min=torch.finfo(dtype).tiny)
    mean = mean / safe
    at_mean = model.log_rates(memory, mean.unsqueeze(-1)).squeeze(2).softmax(-1)
    if median and bool((mass < 0.999).any()):
        # an intensity that dies out has no such median on the way
        middle = torch.where(mass < 0.999, quantile(model, memory, mass / 2, steps=12), middle)
        middle = torch.where(middle.isinf(), mean, middle)
    mixed = None if kinds is None else kinds / safe.unsqueeze(-1)
    return NextEvent(mean, mass, at_mean, mixed, middle if median else None)


def _crossing(times: PerMoment, hazard: PerMoment) -> PerEvent:
    """When the integrated intensity passes log 2, linearly between moments; anything where it does not."""
    after = (hazard < _LOG_2).sum(-1, keepdim=True).clamp(1, times.shape[-1] - 1)
    (t0, t1), (h0, h1) = ([x.gather(-1, at) for at in (after - 1, after)] for x in (times, hazard))
    share = (_LOG_2 - h0) / (h1 - h0).clamp(min=torch.finfo(h0.dtype).tiny)
    return (t0 + share.clamp(0, 1) * (t1 - t0)).squeeze(-1)


def quantile(model: IntensityModel, memory: Memory, level: float | PerEvent = 0.5, steps: int = 40) -> PerEvent:
    """The wait until which the next event has come with this probability; infinite where that never happens."""
    low = _zeros(model, memory)
    wanted = -torch.log1p(-torch.as_tensor(level, dtype=low.dtype, device=low.device))
    high, below = torch.full_like(low, torch.inf), torch.zeros_like(low)
    for start, stop in pairwise(_edges(FINE)):
        reached = below + _hazard(model, memory, torch.full_like(low, start), torch.full_like(low, stop))
        ends = (reached >= wanted) & high.isinf()
        high = torch.where(ends, stop, high)
        inside = high.isinf()
        low, below = torch.where(inside, stop, low), torch.where(inside, reached, below)
        if not bool(inside.any()):
            break
    never = high.isinf()
    begin, high = low, torch.where(never, low, high)
    for _ in range(steps):
        middle = (low + high) / 2
        passed = below + _hazard(model, memory, begin, middle) >= wanted
        low, high = torch.where(passed, low, middle), torch.where(passed, middle, high)
    return torch.where(never, torch.inf, (low + high) / 2)


def chance_within(model: IntensityModel, memory: Memory, wait: float) -> PerEvent:
    """The probability that the next event comes within ``wait``, ``1 - exp(-Λ(wait))``."""
    hazard = _zeros(model, memory)
    for start, stop in pairwise([*(edge for edge in _edges(FINE) if edge < wait), wait]):
        hazard = hazard + _hazard(model, memory, torch.full_like(hazard, start), torch.full_like(hazard, stop))
    return -torch.expm1(-hazard)


@torch.no_grad()
def draw_next(
    model: IntensityModel, memory: Memory, *, until: Tensor | None = None, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, " batch"], Int[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The wait for the next event after the last row of each memory, its type, and whether it comes before ``until``.

    Ogata's thinning: within a piece of time the intensity is at most M (:meth:`IntensityModel.bound`), so points of a
    Poisson process with rate M, each kept with probability ``λ(t) / M``, have intensity λ. Nothing is approximated.
    Waits longer than ``until`` [B] are not drawn to their end; without it an intensity that has died out is an error.
    """
    now = _zeros(model, memory)[:, 0]
    count, dtype, device = len(now), now.dtype, now.device
    limit = torch.full((count,), torch.inf, dtype=dtype, device=device) if until is None else until.to(device, dtype)
    length = torch.full_like(now, _FIRST_PIECE)
    waiting = torch.ones(count, dtype=torch.bool, device=device)
    for _ in range(_MOST_TRIES):
        end = now + length
        bound = model.bound(memory, now[:, None], end[:, None]).squeeze(1)
        step = torch.empty(count, dtype=dtype).exponential_(generator=generator).to(device) / bound
        proposed = now + step
        inside = waiting & (proposed <= end)
        at = torch.where(inside, proposed, end)
        rate = model.total(memory, at[:, None, None]).flatten()
        if bool((inside & (rate > bound * (1 + 1e-4))).any()):
            raise RuntimeError("an intensity exceeds its bound: please report this as a bug")
        chance = torch.rand(count, dtype=dtype, generator=generator).to(device)
        kept = inside & (chance * bound <= rate)
        now = torch.where(waiting, at, now)
        length = torch.where(waiting & ~inside, length * _LONGER, length)
        waiting = waiting & ~kept & (now < limit)
        if not bool(waiting.any()):
            break
        if not bool(torch.isfinite(end).all()):
            raise RuntimeError("the intensity has died out, and no event comes: pass until=, where sampling ends")
    else:
        raise RuntimeError(
            f"no event was drawn in {_MOST_TRIES:,} tries of thinning: the bound of the intensity is too loose"
        )
    came = now <= limit
    shares = model.log_rates(memory, now[:, None, None]).flatten(1).softmax(-1).double().cpu()
    return now, torch.multinomial(shares, 1, generator=generator).squeeze(1).to(device), came


def _hazard(model: IntensityModel, memory: Memory, start: Tensor, stop: Tensor) -> Tensor:
    """``∫_start^stop λ`` within one piece."""
    ends = model.integral(memory, torch.stack([start, stop], -1))
    if ends is not None:
        return ends[..., 1] - ends[..., 0]
    x, w = (torch.as_tensor(part, dtype=start.dtype, device=start.device) for part in gauss_legendre(FINE.nodes))
    length = (stop - start).unsqueeze(-1)
    return (model.total(memory, start.unsqueeze(-1) + length * x) * length) @ w


def _zeros(model: IntensityModel, memory: Memory) -> PerEvent:
    """A zero for each event, as wide as the model's parameters."""
    some = next(iter(memory.rows.values()))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), some.dtype)
    return torch.zeros(some.shape[:2], dtype=dtype, device=some.device)

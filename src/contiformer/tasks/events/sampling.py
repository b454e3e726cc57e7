"""Drawing what happens next, by thinning."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.memory import Memory

#: Pieces in which the bound is looked for: the first one in mean waits, and how much longer each next one is.
_FIRST, _LONGER = 2.0**-6, 1.5
_MOST_TRIES = 1_000_000


@torch.no_grad()
def draw_next(
    model: IntensityModel,
    memory: Memory,
    *,
    until: Float[Tensor, " batch"] | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, " batch"], Int[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The wait for the next event after the last row of each memory, its type, and whether it comes before ``until``.

    Ogata's thinning: within a piece of time the intensity is at most M (:meth:`IntensityModel.bound`), so points of a
    Poisson process with rate M, each kept with probability ``λ(t) / M``, have intensity λ. Nothing is approximated.

    Args:
        model: whose intensity.
        memory: with one row for each sequence.
        until: waits that are longer are not drawn to their end; None: no such limit.
        generator: of the random numbers.

    Raises:
        RuntimeError: the next event does not come, because the intensity has died out or its bound is too far off.
    """
    some = next(iter(memory.rows.values()))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), some.dtype)
    count, device = some.shape[0], some.device
    limit = torch.full((count,), torch.inf, dtype=dtype, device=device) if until is None else until.to(device, dtype)
    now, length = torch.zeros(count, dtype=dtype, device=device), torch.full((count,), _FIRST, dtype=dtype)
    length = length.to(device)
    waiting = torch.ones(count, dtype=torch.bool, device=device)
    for _ in range(_MOST_TRIES):
        end = now + length
        bound = model.bound(memory, now[:, None], end[:, None]).squeeze(1)
        step = torch.empty(count, dtype=dtype).exponential_(generator=generator).to(device) / bound
        proposed = now + step
        inside = waiting & (proposed <= end)
        at = torch.where(inside, proposed, end)
        rate = model.total(memory, at[:, None, None]).flatten()
        _check_bound(rate, bound, inside)
        chance = torch.rand(count, dtype=dtype, generator=generator).to(device)
        kept = inside & (chance * bound <= rate)
        now = torch.where(waiting, at, now)
        length = torch.where(waiting & ~inside, length * _LONGER, length)
        waiting = waiting & ~kept & (now < limit)
        if not bool(waiting.any()):
            break
        if not bool(torch.isfinite(end).all()):
            raise RuntimeError(
                "the next event does not come: the intensity has died out. Pass until=, so that sampling may end "
                "without one"
            )
    else:
        raise RuntimeError(f"no event was drawn in {_MOST_TRIES:,} tries: the bound of the intensity is too far off")
    came = now <= limit
    shares = model.log_rates(memory, now[:, None, None]).flatten(1).softmax(-1).double().cpu()
    kind = torch.multinomial(shares, 1, generator=generator).squeeze(1).to(device)
    return now, kind, came


def _check_bound(rate: Tensor, bound: Tensor, inside: Tensor) -> None:
    """A bound that does not hold would make wrong samples without a word."""
    if bool((inside & (rate > bound * (1 + 1e-4))).any()):
        raise RuntimeError("an intensity exceeds its bound: please report this as a bug")

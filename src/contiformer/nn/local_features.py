"""Local features: exact means of each channel's path over windows before and after every observation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def fill_channels(
    values: Float[Tensor, "batch points channels"],
    times: Float[Tensor, "batch points"],
    observed: Bool[Tensor, "batch points channels"],
    *,
    causal: bool = False,
) -> Float[Tensor, "batch points channels"]:
    """Each channel at all times: on the line between its neighbouring observations, held before and after them.

    A causal fill only holds the last observation, and is 0 before the first. A channel never observed is 0.
    """
    before, after = _neighbours(observed)
    seen_before, seen_after = before >= 0, after < observed.shape[1]
    first, last = before.clamp(min=0), after.clamp(max=observed.shape[1] - 1)
    left = values.gather(1, first) * seen_before
    if causal:
        return left
    right = values.gather(1, last) * seen_after
    left, right = torch.where(seen_before, left, right), torch.where(seen_after, right, left)
    wide = times.unsqueeze(-1).expand_as(observed)
    start, end = wide.gather(1, first), wide.gather(1, last)
    share = ((wide - start) / (end - start).clamp(min=torch.finfo(wide.dtype).tiny)).clamp(0, 1).to(values.dtype)
    return torch.where(observed, values, left + share * (right - left))


def time_since_observed(
    times: Float[Tensor, "batch points"], observed: Bool[Tensor, "batch points channels"]
) -> Float[Tensor, "batch points channels"]:
    """Time since the channel was last observed, up to and including now; since the series began where it never was."""
    before, _ = _neighbours(observed)
    wide = times.unsqueeze(-1).expand_as(observed)
    return wide - wide.gather(1, before.clamp(min=0))


def window_means(
    filled: Float[Tensor, "batch points channels"],
    times: Float[Tensor, "batch points"],
    lengths: Int[Tensor, " batch"],
    edges: Float[Tensor, " edges"],
    around: Float[Tensor, "batch centres"] | None = None,
) -> Float[Tensor, "batch centres edges-1 channels"]:
    """Means of the path through ``filled`` over ``[t + edges_k, t + edges_{k+1}]`` around each point or other times t.

    The path is linear between the points and held beyond the first and last of the ``lengths`` valid ones, so the means
    are differences of a piecewise quadratic integral: exact, whatever the gaps. Equal neighbouring edges give the value
    of the path there.
    """
    batch, points, channels = filled.shape
    if points == 0:
        count = 0 if around is None else around.shape[1]
        return filled.new_zeros(batch, count, len(edges) - 1, channels)
    inside = torch.arange(points, device=times.device) < lengths[:, None]
    last = (lengths - 1).clamp(min=0)
    # padding lies where the last point does, and adds nothing to the integral
    times = torch.where(inside, times, times.gather(1, last[:, None]))
    filled = torch.where(inside[..., None], filled, filled.gather(1, last[:, None, None].expand(-1, 1, channels)))
    start = times[:, :1]
    time = times - start
    steps = time.diff(dim=1).unsqueeze(-1)
    total = torch.cat(
        [filled.new_zeros(batch, 1, channels), (steps * (filled[:, 1:] + filled[:, :-1]) / 2).cumsum(1)], dim=1
    )
    centres = time if around is None else around.to(time) - start
    at = (centres.unsqueeze(-1) + edges.to(time)).flatten(1)
    cell = torch.searchsorted(time, at, right=True) - 1
    low = cell.clamp(min=0)
    high = (cell + 1).clamp(max=points - 1)

    def read(x: Tensor, index: Tensor) -> Tensor:
        return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

    start_value, end_value = read(filled, low), read(filled, high)
    gone = (at - time.gather(1, low)).unsqueeze(-1)
    gap = (time.gather(1, high) - time.gather(1, low)).unsqueeze(-1)
    share = torch.where(gap > 0, gone / gap.where(gap > 0, 1.0), 0.0).clamp(0, 1)
    here = start_value + share * (end_value - start_value)
    integral = read(total, low) + gone * (start_value + here) / 2
    shape = (centres.shape[1], -1)
    integral, here = integral.unflatten(1, shape), here.unflatten(1, shape)
    width = edges.diff().to(time)[:, None]
    means = integral.diff(dim=2) / width.where(width > 0, 1.0)
    return torch.where(width > 0, means, here[:, :, :-1]).to(filled.dtype)


def _neighbours(
    observed: Bool[Tensor, "batch points channels"],
) -> tuple[Int[Tensor, "batch points channels"], Int[Tensor, "batch points channels"]]:
    """Position of the last observation up to each point, or -1; and of the next from it on, or the number of points."""
    points = observed.shape[1]
    place = torch.arange(points, device=observed.device).view(1, -1, 1)
    before = torch.where(observed, place, -1).cummax(1).values
    after = torch.where(observed, place, points).flip(1).cummin(1).values.flip(1)
    return before, after


def around(
    values: Float[Tensor, "batch points channels"],
    times: Float[Tensor, "batch points"],
    observed: Bool[Tensor, "batch points channels"],
    query_times: Float[Tensor, "batch query"],
) -> tuple[
    Float[Tensor, "batch query channels"],
    Float[Tensor, "batch query channels 2"],
    Bool[Tensor, "batch query channels 2"],
]:
    """Each channel at any times, and how far its neighbouring observations are.

    Returns:
        The value on the line between the last observation up to the query and the next after it, held where there is
        only one of them and 0 where there is none; the times since the one and until the other, 0 where there is none;
        and whether there are.
    """
    points = times.shape[1]
    if points == 0:
        shape = (*query_times.shape, observed.shape[-1])
        none = values.new_zeros(shape)
        return none, none.unsqueeze(-1).expand(*shape, 2), torch.zeros(*shape, 2, dtype=torch.bool, device=times.device)
    before, after = _neighbours(observed)
    row = torch.searchsorted(times.contiguous(), query_times.to(times).contiguous(), right=True)

    def pick(x: Tensor, index: Tensor) -> Tensor:
        return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

    first = pick(before, (row - 1).clamp(min=0)).where((row > 0).unsqueeze(-1), -1)
    second = pick(after, row.clamp(max=points - 1)).where((row < points).unsqueeze(-1), points)
    has = torch.stack([first >= 0, second < points], dim=-1)
    first, second = first.clamp(min=0), second.clamp(max=points - 1)
    wide = times.unsqueeze(-1).expand_as(observed)
    now = query_times.to(times).unsqueeze(-1)
    since, until = (now - wide.gather(1, first)) * has[..., 0], (wide.gather(1, second) - now) * has[..., 1]
    left, right = values.gather(1, first) * has[..., 0], values.gather(1, second) * has[..., 1]
    left, right = torch.where(has[..., 0], left, right), torch.where(has[..., 1], right, left)
    span = since + until
    share = torch.where(has.all(-1) & (span > 0), since / span.where(span > 0, 1.0), 0.0).to(values.dtype)
    return left + share * (right - left), torch.stack([since, until], dim=-1).to(values.dtype), has

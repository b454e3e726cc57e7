"""Checked layer inputs: valid rows first, padding with the last time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.paths.interpolation import count_until, pick_rows
from contiformer.paths.tables import traced


def valid_first(valid: Bool[Tensor, "batch rows"]) -> Int[Tensor, "batch rows"]:
    """Row compaction: positions of the valid rows in their order, then those of the others."""
    # each row's place, without a sort, which exporters do not have
    place = torch.where(valid, valid.cumsum(1), valid.sum(1, keepdim=True) + valid.logical_not().cumsum(1)) - 1
    index = torch.arange(valid.shape[1], device=valid.device).expand_as(place)
    return torch.zeros_like(place).scatter(1, place, index)


def snap_ties(times: Float[Tensor, "batch obs"], given: torch.dtype) -> Float[Tensor, "batch obs"]:
    """Move times that the clock does not tell apart onto the first of them, so that they are equal everywhere else.

    The clock tells times apart that differ by more than 1e-11 of the window up to them, and by more than four times the
    spacing of numbers of their size in the precision ``given``. Later times do not matter, so a causal model may do
    this.

    Example:
        >>> import torch
        >>> from contiformer.nn.observations import snap_ties
        >>> snap_ties(torch.tensor([[0.0, 1.0, 1.0 + 1e-12, 2.0]], dtype=torch.float64), torch.float64).tolist()
        [[0.0, 1.0, 1.0, 2.0]]
    """
    spacing = torch.finfo(given if given.is_floating_point else times.dtype).eps
    clock, first = times.detach(), times.detach()[:, :1]
    apart = torch.maximum(1e-11 * (clock - first), 4 * spacing * torch.maximum(clock.abs(), first.abs()))
    fresh = torch.cat([torch.ones_like(first, dtype=torch.bool), (clock[:, 1:] - clock[:, :-1]) > apart[:, 1:]], 1)
    group = fresh.cumsum(1) - 1
    firsts = torch.zeros_like(times).scatter_add(1, group, torch.where(fresh, times, 0.0))
    return firsts.gather(1, group)


@dataclass(frozen=True)
class Observations:
    """Sequences with their valid rows at the front.

    Shapes: x [B, N, d]; times [B, N], in float64 where the device has it, the last valid time repeated over padding;
    query_times [B, Q] or None for the times; valid [B, N]; lengths [B], at least 1 (an empty sequence keeps one
    invalid row); order [B, N], where each row came from, None if no row moved.
    """

    x: Float[Tensor, "batch obs d"]
    times: Float[Tensor, "batch obs"]
    query_times: Float[Tensor, "batch query"] | None
    valid: Bool[Tensor, "batch obs"]
    lengths: Int[Tensor, " batch"]
    order: Int[Tensor, "batch obs"] | None
    complete: bool
    distinct_knots: bool

    @property
    def distinct(self) -> bool:
        """All rows valid and no two times equal."""
        return self.complete and self.distinct_knots

    @classmethod
    def of(
        cls, x: Tensor, times: Tensor, query_times: Tensor | None, mask: Tensor | None, d_model: int | None = None
    ) -> Observations:
        """Check the arguments, with an error that names the one at fault, and order the rows."""
        _check_shapes(x, times, query_times, mask, d_model)
        exact = times.dtype if times.device.type == "mps" else torch.float64
        # a copy: the passes keep it for the backward pass, and the caller may use the buffer again
        clock = times.to(exact, copy=True)
        queries = None if query_times is None else query_times.to(exact)
        batch, obs = times.shape
        if mask is None and not traced(x, times) and _plainly_sorted(clock, queries, times.dtype):
            _refuse_infinite(x.detach(), None)
            lengths = torch.full((batch,), obs, device=x.device)
            valid = torch.ones(batch, obs, dtype=torch.bool, device=x.device)
            return cls(x, clock, queries, valid, lengths, None, complete=True, distinct_knots=True)
        valid = torch.ones(batch, obs, dtype=torch.bool, device=x.device) if mask is None else mask.clone()
        if traced(x, times):
            complete, distinct = mask is None, False
        else:
            complete, distinct = _check_values(clock, queries, valid)
            _refuse_infinite(x.detach(), valid)
        lengths = valid.sum(1).clamp(min=1)
        order = None
        if not complete:
            order = valid_first(valid)
            valid = valid.gather(1, order)
            x = torch.where(valid[..., None], pick_rows(x, order), 0.0)
            # padding repeats the last time, and an empty sequence stands where it is asked about
            asked = queries is not None and queries.shape[1] > 0
            empty = queries.detach().amin(1, keepdim=True) if queries is not None and asked else clock.new_zeros(())
            clock = torch.where(valid, clock.gather(1, order), empty)
            clock = torch.where(valid, clock, clock.gather(1, lengths[:, None] - 1))
        snapped = snap_ties(clock, times.dtype)
        # padding repeats the last time, which is no tie
        distinct = distinct and bool((snapped == clock).all())
        return cls(x, snapped, queries, valid, lengths, order, complete, distinct)

    def select(self, index: Int[Tensor, " some"]) -> Observations:
        """Some of the sequences."""
        return replace(
            self,
            x=self.x[index],
            times=self.times[index],
            query_times=None if self.query_times is None else self.query_times[index],
            valid=self.valid[index],
            lengths=self.lengths[index],
            order=None if self.order is None else self.order[index],
        )

    def window(self) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """First and last time of each sequence, observations and queries together."""
        start, end = self.times[:, 0], self.times[:, -1]
        if self.query_times is not None and self.query_times.shape[1]:
            asked = self.query_times.detach()
            start, end = torch.minimum(start, asked.amin(1)), torch.maximum(end, asked.amax(1))
        return start.detach(), end.detach()

    def last_known(
        self, queries: Float[Tensor, "batch query"]
    ) -> tuple[Float[Tensor, "batch query"], Bool[Tensor, "batch query"]]:
        """Time of the last observation at or before each query (the query's own where there is none), and if any is."""
        count = count_until(self.times, queries)
        exists = (count > 0) & self.valid[:, :1]
        return torch.where(exists, self.times.gather(1, (count - 1).clamp(min=0)), queries.detach()), exists

    def to_input_order(self, result: Tensor, dim: int = 1) -> Tensor:
        """Put rows back to where they came from, with zeros in place of the invalid ones."""
        if self.order is None:
            return result
        shape = [1] * result.dim()
        shape[0], shape[dim] = self.valid.shape
        kept = torch.where(self.valid.view(shape), result, 0.0)
        return torch.zeros_like(kept).scatter(dim, self.order.view(shape).expand_as(kept), kept)


def _check_shapes(x: Tensor, times: Tensor, queries: Tensor | None, mask: Tensor | None, d_model: int | None) -> None:
    if x.dim() != 3 or (d_model is not None and x.shape[-1] != d_model):
        raise ValueError(f"x must be [batch, observations, {d_model or 'channels'}], got {tuple(x.shape)}")
    if times.shape != x.shape[:2]:
        raise ValueError(f"times must be [batch, observations] = {tuple(x.shape[:2])} like x, got {tuple(times.shape)}")
    if queries is not None and (queries.dim() != 2 or queries.shape[0] != x.shape[0]):
        raise ValueError(f"query_times must be [batch={x.shape[0]}, queries], got {tuple(queries.shape)}")
    if mask is not None and mask.shape != times.shape:
        raise ValueError(f"mask must be [batch, observations] = {tuple(times.shape)}, got {tuple(mask.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean with True = observed, got {mask.dtype}")
    for name, value in (("times", times), ("query_times", queries)):
        if value is not None and not value.dtype.is_floating_point and value.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"{name} must be real numbers, got {value.dtype}")


def _plainly_sorted(times: Tensor, queries: Tensor | None, given: torch.dtype) -> bool:
    """Whether one check over the batch shows finite, strictly increasing times."""
    if (
        times.shape[1] < 2
        or not times.numel()
        or (queries is not None and not math.isfinite(float(queries.detach().sum())))
    ):
        return False
    clock = times.detach()
    spacing = torch.finfo(given if given.is_floating_point else times.dtype).eps
    low, high = (float(bound) for bound in torch.aminmax(clock))
    apart = max(1e-11 * (high - low), 4 * spacing * max(abs(low), abs(high)))
    # a gap that is no number is not larger
    return float((clock[:, 1:] - clock[:, :-1]).min()) > apart


def _refuse_infinite(x: Tensor, valid: Tensor | None) -> None:
    """NaN in one row would reach others, in a causal model even earlier ones: zero times NaN is NaN."""
    # a finite sum is quick to see and leaves no doubt
    if math.isfinite(float(x.sum())):
        return
    bad = ~torch.isfinite(x).all(-1)
    bad = bad if valid is None else bad & valid
    if bool(bad.any()):
        row, column = torch.nonzero(bad)[0].tolist()
        raise ValueError(
            f"x must be finite, it is not in sequence {row} at position {column}: mask the row if it was not observed"
        )


def _check_values(times: Tensor, queries: Tensor | None, valid: Tensor) -> tuple[bool, bool]:
    """Whether all rows are valid and whether valid times strictly increase; refuse what is not finite or sorted."""
    times = times.detach()
    complete = bool(valid.all())
    shown = times if complete else times.masked_fill(~valid, 0.0)
    if not bool(torch.isfinite(shown).all()):
        row, column = torch.nonzero(~torch.isfinite(shown))[0].tolist()
        raise ValueError(
            f"times must be finite, got {float(times[row, column])} in sequence {row} at position {column}"
        )
    if queries is not None and not bool(torch.isfinite(queries).all()):
        row, column = torch.nonzero(~torch.isfinite(queries))[0].tolist()
        raise ValueError(f"query_times must be finite, got {float(queries[row, column])} in sequence {row}")
    before = times[:, :-1]
    if not complete:
        # each valid time against the last valid one before it
        index = torch.arange(times.shape[1], device=times.device).expand_as(times)
        last = torch.where(valid, index, -1).cummax(1).values[:, :-1]
        before = torch.where(last >= 0, times.gather(1, last.clamp(min=0)), -torch.inf)
    gap = times[:, 1:] - before
    gap = gap if complete else gap.masked_fill(~valid[:, 1:], torch.inf)
    smallest = float(gap.min()) if gap.numel() else torch.inf
    if smallest < 0:
        row, column = torch.nonzero(gap < 0)[0].tolist()
        raise ValueError(
            f"times must not decrease: sequence {row} has {float(before[row, column]):g} before "
            f"{float(times[row, column + 1]):g} at position {column + 1}. Sort the observations by time first"
        )
    return complete, smallest > 0

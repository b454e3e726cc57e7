"""Paths through irregular observations that drive a differential equation."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.backbones.recurrence import Rows
from contiformer.nn.local_features import fill_channels
from contiformer.nn.observations import valid_first
from contiformer.paths.interpolation import Interpolation, PiecewisePolynomial, interpolate

Times = Float[Tensor, "batch times"]
ControlKind = Literal["cubic", "hermite", "linear", "rectilinear"]
CONTROLS: tuple[str, ...] = get_args(ControlKind)


def path_values(
    rows: Rows, count_unit: float | None, *, causal: bool
) -> tuple[Float[Tensor, "batch rows counts"], Float[Tensor, "batch rows channels"]]:
    """Observation counts of each channel so far, in ``count_unit`` (None: no counts), and each channel at all rows."""
    values = fill_channels(rows.values, rows.times, rows.observed, causal=causal)
    if count_unit is None:
        return values[..., :0], values
    return rows.observed.cumsum(1).to(values.dtype) / count_unit, values


class Control:
    """The slope of ``X(t) = [t, counts(t), values(t)]``, smooth between rows.

    Counts and values are interpolated as ``kind`` says. A natural cubic spline goes through what was observed of each
    channel alone, and is held by a knot at the first and at the last row; the others go through lines where channels
    are missing. So does torchcde.
    """

    def __init__(self, kind: Interpolation, rows: Rows, count_unit: float | None) -> None:
        counts, values = path_values(rows, count_unit, causal=False)
        self.start = torch.cat([rows.times[:, :1].to(values.dtype), counts[:, 0], values[:, 0]], dim=-1)
        lengths = rows.present.sum(1).clamp(min=1)
        whole = bool((rows.observed.all(-1) | ~rows.present).all())
        self._apart: PiecewisePolynomial | None = None
        if kind == "cubic" and not whole:
            self._apart = _slope(_channel_splines(rows, values))
            values = values[..., :0]
        self._shared = _slope(interpolate(kind, rows.times, torch.cat([counts, values], dim=-1), lengths))

    def slope(self, t: Times, inside: Times) -> Float[Tensor, "batch times channels"]:
        """dX/dt at each t, on the polynomial of the cell that the time ``inside`` lies in: at a knot there are two."""
        parts = [_in_cell(self._shared, t, inside)]
        if self._apart is not None:
            channels = self._apart.knots.shape[0] // t.shape[0]
            wide_t, wide_inside = (x.repeat_interleave(channels, 0) for x in (t, inside))
            parts.append(_in_cell(self._apart, wide_t, wide_inside).view(t.shape[0], channels, -1).transpose(1, 2))
        return torch.cat([torch.ones_like(t, dtype=parts[0].dtype).unsqueeze(-1), *parts], dim=-1)


def _channel_splines(rows: Rows, values: Float[Tensor, "batch rows channels"]) -> PiecewisePolynomial:
    """A natural spline for each channel through its own knots, [B * C, N] of them."""
    place = torch.arange(rows.times.shape[1], device=rows.times.device)
    last = rows.present.sum(1, keepdim=True) - 1
    ends = (place == 0) | (place == last)
    knots = (rows.observed | ends.unsqueeze(-1)).transpose(1, 2).flatten(0, 1)
    order = valid_first(knots)
    times = rows.times.repeat_interleave(values.shape[-1], 0).gather(1, order)
    own = values.transpose(1, 2).flatten(0, 1).gather(1, order).unsqueeze(-1)
    return interpolate("cubic", times, own, knots.sum(1))


def _slope(path: PiecewisePolynomial) -> PiecewisePolynomial:
    """The derivative of a path; 0 where a cell is empty, and from the last knot on."""
    width = torch.diff(path.knots, dim=1, append=path.knots[:, -1:])
    per_time = torch.where(width > 0, 1 / width.where(width > 0, 1.0), 0.0).to(path.coefficients.dtype)
    power = torch.arange(1, path.coefficients.shape[2], device=width.device).unsqueeze(-1)
    return PiecewisePolynomial(path.knots, path.coefficients[:, :, 1:] * power * per_time[..., None, None])


def _in_cell(path: PiecewisePolynomial, t: Tensor, inside: Tensor) -> Float[Tensor, "batch times d"]:
    cell, _ = path.locate(inside.to(path.knots))
    s = path.local(t.to(path.knots), cell).to(path.coefficients.dtype).flatten().unsqueeze(-1)
    batch, cells = path.coefficients.shape[:2]
    # whole rows at a time: gather would look up every number; and one power at a time: all of them are much memory
    place = (cell + cells * torch.arange(batch, device=cell.device).unsqueeze(1)).flatten()
    powers = path.coefficients.flatten(0, 1).unbind(1)
    value = powers[-1].index_select(0, place)
    for power in reversed(powers[:-1]):
        value = torch.addcmul(power.index_select(0, place), value, s)
    return value.unflatten(0, cell.shape)

"""Neural controlled differential equations: the state is driven by a path through the observations."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States, check_positive
from contiformer.backbones.flow import Flow, StepSchedule, tanh_network
from contiformer.backbones.recurrence import Rows, state_after
from contiformer.data.batch import Batch
from contiformer.native.dispatch import unhooked, usable
from contiformer.native.rivals.neural_cde import MatrixNetwork, driven
from contiformer.nn.dropout import Dropout
from contiformer.nn.local_features import fill_channels
from contiformer.nn.observations import valid_first
from contiformer.paths.interpolation import Interpolation, PiecewisePolynomial, interpolate
from contiformer.paths.runge_kutta import runge_kutta_step

Times = Float[Tensor, "batch times"]
ControlKind = Literal["cubic", "hermite", "linear", "rectilinear"]
CONTROLS: tuple[str, ...] = get_args(ControlKind)


class NeuralCDE(Backbone):
    """Kidger, Morrill, Foster and Lyons, "Neural Controlled Differential Equations for Irregular Time Series" (2020).

    ``z(t_1) = ζ(X(t_1))``, ``dz/dt = f(z) dX/dt`` with a path ``X = [t, counts, values]`` through the observations:
    time, how often each channel was observed so far, and the channels. ζ is linear, f a network of ReLU layers with a
    last ``tanh`` whose output is a matrix [d_model, channels of X]. Before the first and after the last observation the
    state goes on by an ODE ``dz/dt = g(z)``, as in the ContiFormer paper's task of spirals.

    The control is

    - ``cubic``: natural cubic splines, as in the paper. Every state depends on the whole series.
    - ``hermite``: cubic with backward differences as slopes (Morrill et al. 2021): smooth, and where no channel is
      missing a row's state depends on no later row; between two rows it depends on the next one.
    - ``linear``: lines, with the same dependence.
    - ``rectilinear``: first the time moves, then the values jump: causal everywhere, because what is known between two
      rows is that time passes. So there is no g: after the last row, too, ``dX = [dt, 0, 0]``.

    Args:
        n_layers, units: number and width of the hidden layers of f (3 and 32 in the paper's UEA experiment).
        count_unit: counts are divided by it, so that they are of order one as time is; None: no counts.
        step, max_steps: the longest step of the solver (classical Runge-Kutta), and steps between two rows at most.

    Deviations: counts are scaled, and by default there; the paper has them where channels are missing (sepsis) but not
    on UEA. A causal path is 0, the mean, before the first observation of a channel. Rows at the same time are one knot
    with their mean, but for ``rectilinear``.
    """

    citation = "Kidger et al., Neural Controlled Differential Equations, NeurIPS 2020"

    @classmethod
    def capabilities_for(cls, **options: Any) -> Capabilities:
        """Causal with the rectilinear path."""
        return Capabilities(causal=options.get("control") == "rectilinear")

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 3,
        dropout: float = 0.1,
        units: int = 32,
        control: ControlKind = "cubic",
        count_unit: float | None = 100.0,
        step: float = 0.1,
        max_steps: int = 20,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive("32", units=units)
        if control not in CONTROLS:
            raise ValueError(f"control must be one of {', '.join(CONTROLS)}, got {control!r}")
        if count_unit is not None and not count_unit > 0:
            raise ValueError(f"count_unit must be positive, or None for no counts, got {count_unit}: use 100")
        self.control, self.count_unit = control, count_unit
        self.capabilities = self.capabilities_for(control=control)
        self.flow = Flow("rk4", step, max_steps)
        channels = 1 + input_size * (1 if count_unit is None else 2)
        self.initial = nn.Linear(channels, d_model)
        self.field = MatrixField(d_model, channels, units, n_layers)
        self.beyond = None if control == "rectilinear" else tanh_network(d_model, units, 1)
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, self.initial.weight.dtype)
        answer = self._causal if self.control == "rectilinear" else self._smooth
        return self.dropout(answer(rows, query_times))

    def _smooth(self, rows: Rows, query_times: Tensor | None) -> States:
        assert self.control != "rectilinear"
        path = Control(self.control, rows, self.count_unit)
        at_rows = self._at_rows(self.initial(path.start), path, rows)
        if query_times is None:
            return state_after(at_rows, rows.passed)
        passed, elapsed = rows.until(query_times)
        count = rows.present.sum(1, keepdim=True)
        between = torch.where(passed < count, elapsed, 0.0)
        start = rows.times.gather(1, (passed - 1).clamp(min=0))
        z = self._between(state_after(at_rows, passed.clamp(min=1)), path, start, between)
        early = (passed == 0) & (count > 0)
        until = torch.where(early, rows.times[:, :1] - query_times.to(start), 0.0)
        since = torch.where((passed == count) & (count > 0), elapsed, until)
        way = torch.where(early, -1.0, 1.0).to(z.dtype).unsqueeze(-1)
        assert self.beyond is not None
        beyond = self.beyond
        return self.flow(lambda h: way * beyond(h), z, since)

    def _at_rows(self, z: Float[Tensor, "batch d"], path: Control, rows: Rows) -> Float[Tensor, "batch rows d"]:
        """From the state at the first row to those at all."""
        start, gaps = rows.times[:, :-1], rows.gaps[:, 1:]
        count, lengths = self._divide(gaps)
        schedule = StepSchedule.of(count)
        steps = self._slopes(path, start, gaps, lengths, schedule)
        return _states(self._driven(z, steps, schedule.total, gaps), schedule.until)

    def _between(self, z: States, path: Control, start: Tensor, durations: Tensor) -> States:
        """From the states at the start of each query's interval to those at the query."""
        count, lengths = self._divide(durations)
        steps = self._slopes(path, start, durations, lengths, StepSchedule.apart(count))
        return self._each_last(z, steps, count, durations)

    def _causal(self, rows: Rows, query_times: Tensor | None) -> States:
        jumps = torch.cat(path_values(rows, self.count_unit, causal=True), dim=-1)
        z = self.initial(torch.cat([rows.times[:, :1].to(jumps.dtype), jumps[:, 0]], dim=-1))
        at_rows = self._after_jumps(z, jumps, rows)
        if query_times is None:
            return state_after(at_rows, rows.passed)
        passed, elapsed = rows.until(query_times)
        return self._wait(state_after(at_rows, passed), elapsed, jumps) * (passed > 0).unsqueeze(-1)

    def _after_jumps(self, z: Float[Tensor, "batch d"], jumps: Tensor, rows: Rows) -> Float[Tensor, "batch rows d"]:
        """From the state at the first row to those at all, each after the jump of the values there."""
        gaps = rows.gaps[:, 1:]
        count, length = self._divide(gaps)
        schedule = StepSchedule.of((count + 1) * rows.present[:, 1:])
        waits = schedule.number < count.gather(1, schedule.interval)
        lengths = length.gather(1, schedule.interval).to(z.dtype)
        changes = jumps.diff(dim=1).take_along_dim(schedule.interval.unsqueeze(-1), 1)
        moves = torch.where(waits.unsqueeze(-1), _only_time(lengths, jumps), nn.functional.pad(changes, (1, 0)))
        return _states(self._driven(z, _thrice(moves), schedule.total, gaps), schedule.until)

    def _wait(self, z: States, durations: Tensor, jumps: Tensor) -> States:
        """From the states after the last row before each query to those at the query."""
        count, length = self._divide(durations)
        lengths = length.gather(1, StepSchedule.apart(count).interval).to(z.dtype)
        return self._each_last(z, _thrice(_only_time(lengths, jumps)), count, durations)

    def _divide(self, durations: Tensor) -> tuple[Tensor, Tensor]:
        """Number and length of the steps of each duration."""
        plan = self.flow.plan(durations)
        # a step of length 0 changes no state, and yet has a derivative
        return plan.count.clamp(min=1) if durations.requires_grad else plan.count, plan.length

    def _driven(
        self, z: Float[Tensor, "batch d"], steps: Float[Tensor, "batch steps 3 channels"], count: Tensor, over: Tensor
    ) -> Float[Tensor, "batch states d"]:
        """States before the first and after each step of the classical Runge-Kutta method, of which each takes so many.

        ``steps`` are the slopes of the path at the start, middle and end of each step, times its length; ``over`` are
        the durations that they were cut from.
        """
        network = self._network(z, over)
        if network is not None:
            return driven(z, steps, count, network)
        taken = torch.arange(steps.shape[1], device=count.device) < count.unsqueeze(-1)
        states = [z]
        for step in torch.where(taken[..., None, None], steps, 0.0).unbind(1):
            states.append(runge_kutta_step(partial(self._change, step), states[-1]))
        return torch.stack(states, dim=1)

    def _change(self, step: Float[Tensor, "batch three channels"], z: Tensor, share: float) -> Tensor:
        return self.field(z, step[:, int(2 * share)])

    def _each_last(self, z: States, steps: Tensor, count: Tensor, over: Tensor) -> States:
        """The last state of each query, a sequence of its own: steps [B, Q steps, 3, channels], count [B, Q]."""
        own = steps.reshape(count.numel(), steps.shape[1] // max(count.shape[1], 1), *steps.shape[2:])
        return self._driven(z.flatten(0, 1), own, count.flatten(), over)[:, -1].view_as(z)

    def _network(self, z: Tensor, durations: Tensor) -> MatrixNetwork | None:
        """The network f for the kernel, or None where the kernel is not to be used."""
        # autocast may have made the state something else; and derivatives by the time may be taken twice
        if durations.requires_grad or not usable(z) or type(self.field) is not MatrixField:
            return None
        network = self.field.known()
        return network if network is not None and usable(*network.weights, *network.biases) else None

    def _slopes(
        self, path: Control, start: Tensor, durations: Tensor, lengths: Tensor, schedule: StepSchedule
    ) -> Float[Tensor, "batch steps three channels"]:
        """Slopes of the path at the start, middle and end of each step of a schedule, times the length of the step."""
        length = lengths.gather(1, schedule.interval)
        begun = start.gather(1, schedule.interval) + schedule.number * length
        inside = (start + durations / 2).gather(1, schedule.interval)
        times = torch.stack([begun, begun + length / 2, begun + length], dim=-1)
        slopes = path.slope(times.flatten(1), inside.repeat_interleave(3, dim=1)).unflatten(1, (-1, 3))
        return slopes * length[..., None, None].to(slopes.dtype)


def _only_time(lengths: Float[Tensor, "batch steps"], jumps: Tensor) -> Float[Tensor, "batch steps channels"]:
    """Steps in which time moves and nothing else."""
    return nn.functional.pad(lengths.unsqueeze(-1), (0, jumps.shape[-1]))


def _thrice(moves: Float[Tensor, "batch steps channels"]) -> Float[Tensor, "batch steps three channels"]:
    """Steps along lines, which have one slope."""
    return moves.unsqueeze(2).expand(-1, -1, 3, -1)


def _states(states: Float[Tensor, "batch states d"], after: Tensor) -> Float[Tensor, "batch rows d"]:
    """The states after so many steps."""
    return states.gather(1, after.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class MatrixField(nn.Module):
    """``f(z) dX``: ReLU layers and a last tanh make a matrix of z, which is applied to the step of the path."""

    def __init__(self, width: int, channels: int, units: int, depth: int) -> None:
        super().__init__()
        sizes = [width, *[units] * depth]
        hidden: list[nn.Module] = []
        for before, after in pairwise(sizes):
            hidden += [nn.Linear(before, after), nn.ReLU()]
        self.network = nn.Sequential(*hidden, nn.Linear(units, width * channels), nn.Tanh())
        self.channels = channels

    def known(self) -> MatrixNetwork | None:
        """The network, if it is still the one that was made here and nothing is hooked to it."""
        return MatrixNetwork.of(self.network, self.channels) if unhooked(self) else None

    def forward(
        self, z: Float[Tensor, "*shape d"], step: Float[Tensor, "*shape channels"]
    ) -> Float[Tensor, "*shape d"]:
        matrix = self.network(z).unflatten(-1, (-1, self.channels))
        return (matrix @ step.unsqueeze(-1)).squeeze(-1)


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

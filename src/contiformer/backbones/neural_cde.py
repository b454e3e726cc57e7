"""Neural controlled differential equations: the state is driven by a path through the observations."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.control import CONTROLS, Control, ControlKind, path_values
from contiformer.backbones.ode_rnn import Flow, tanh_network
from contiformer.backbones.recurrence import Rows, check_sizes, state_after
from contiformer.data.batch import Batch

#: Slopes times the length of a step, at its start, middle and end.
Piece = tuple[Tensor, Tensor, Tensor]


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
        input_size: channels C.
        d_model: width of z.
        n_layers: hidden layers of f (3 in the paper's UEA experiment).
        dropout: of the states (none in the paper).
        units: width of the hidden layers of f and g (32 in the same experiment).
        control: see above.
        count_unit: counts are divided by it, so that they are of order one as time is; None: no counts.
        step: the longest step of the solver (classical Runge-Kutta); at least one from row to row.
        max_steps: steps between two rows at most: longer gaps have longer steps.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Deviations: counts are scaled, and by default there; the paper has them where channels are missing (sepsis) but not
    on UEA. A causal path is 0, the mean, before the first observation of a channel. Rows at the same time are one knot
    with their mean, but for ``rectilinear``. Without any observation the path is constantly 0. The solver is not
    torchdiffeq's: every series has times and numbers of steps of its own, which it has not.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> NeuralCDE(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    citation = "Kidger et al., Neural Controlled Differential Equations, NeurIPS 2020"

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
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        if units < 1:
            raise ValueError(f"units must be positive, got {units}: use 32")
        if control not in CONTROLS:
            raise ValueError(f"control must be one of {', '.join(CONTROLS)}, got {control!r}")
        if count_unit is not None and not count_unit > 0:
            raise ValueError(f"count_unit must be positive, or None for no counts, got {count_unit}: use 100")
        self.d_model, self.control, self.count_unit = d_model, control, count_unit
        self.capabilities = Capabilities(causal=control == "rectilinear")
        self.flow = Flow("rk4", step, max_steps)
        channels = 1 + input_size * (1 if count_unit is None else 2)
        self.initial = nn.Linear(channels, d_model)
        self.field = MatrixField(d_model, channels, units, n_layers)
        self.beyond = None if control == "rectilinear" else tanh_network(d_model, units, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        rows = Rows.of(batch, self.initial.weight.dtype)
        answer = self._causal if self.control == "rectilinear" else self._smooth
        return self.dropout(answer(rows, query_times))

    def _smooth(self, rows: Rows, query_times: Tensor | None) -> Float[Tensor, "batch query d"]:
        assert self.control != "rectilinear"
        path = Control(self.control, rows, self.count_unit)
        z = self.initial(path.start)
        states = [z]
        for pieces in self._by_rows(self._pieces(path, rows.times[:, :-1], rows.gaps[:, 1:]), rows.gaps[:, 1:]):
            for piece in pieces:
                z = self._advance(z, piece)
            states.append(z)
        at_rows = torch.stack(states, dim=1)
        if query_times is None:
            return state_after(at_rows, rows.passed)
        passed, elapsed = rows.until(query_times)
        count = rows.present.sum(1, keepdim=True)
        between = torch.where(passed < count, elapsed, 0.0)
        start = rows.times.gather(1, (passed - 1).clamp(min=0))
        z = state_after(at_rows, passed.clamp(min=1))
        for piece in self._pieces(path, start, between):
            z = self._advance(z, piece)
        early = (passed == 0) & (count > 0)
        until = torch.where(early, rows.times[:, :1] - query_times.to(start), 0.0)
        since = torch.where((passed == count) & (count > 0), elapsed, until)
        way = torch.where(early, -1.0, 1.0).to(z.dtype).unsqueeze(-1)
        assert self.beyond is not None
        beyond = self.beyond
        return self.flow(lambda h: way * beyond(h), z, since)

    def _causal(self, rows: Rows, query_times: Tensor | None) -> Float[Tensor, "batch query d"]:
        jumps = torch.cat(path_values(rows, self.count_unit, causal=True), dim=-1)
        z = self.initial(torch.cat([rows.times[:, :1].to(jumps.dtype), jumps[:, 0]], dim=-1))
        states = [z]
        gaps = rows.gaps[:, 1:]
        waits = self._by_rows(self._waits(gaps, jumps), gaps)
        changes = nn.functional.pad(jumps.diff(dim=1), (1, 0)).unbind(1)
        for pieces, change in zip(waits, changes, strict=True):
            for piece in pieces:
                z = self._advance(z, piece)
            z = self._advance(z, (change, change, change))
            states.append(z)
        at_rows = torch.stack(states, dim=1)
        if query_times is None:
            return state_after(at_rows, rows.passed)
        passed, elapsed = rows.until(query_times)
        z = state_after(at_rows, passed)
        for piece in self._waits(elapsed, jumps):
            z = self._advance(z, piece)
        return z * (passed > 0).unsqueeze(-1)

    def _advance(self, z: Float[Tensor, "*shape d"], piece: Piece) -> Float[Tensor, "*shape d"]:
        """One step of the classical Runge-Kutta method."""
        start, middle, end = piece
        first = self.field(z, start)
        second = self.field(torch.add(z, first, alpha=0.5), middle)
        third = self.field(torch.add(z, second, alpha=0.5), middle)
        fourth = self.field(z + third, end)
        return torch.add(z, first + fourth + 2 * (second + third), alpha=1 / 6)

    def _pieces(self, path: Control, start: Tensor, durations: Tensor) -> list[Piece]:
        """The steps of all intervals, each [B, Q, channels]; intervals that need fewer than others end with zeros."""
        if not durations.numel():
            return []
        inside, begun, pieces = start + durations / 2, start, []
        for length in self.flow.steps(durations.unsqueeze(0), durations.dtype)[0]:
            step = length.squeeze(-1)
            times = (begun, begun + step / 2, begun + step)
            slopes = path.slope(torch.cat(times, dim=1), torch.cat([inside] * 3, dim=1))
            first, middle, last = (slope * length.to(slope.dtype) for slope in slopes.chunk(3, dim=1))
            pieces.append((first, middle, last))
            begun = begun + step
        return pieces

    def _waits(self, durations: Tensor, jumps: Tensor) -> list[Piece]:
        """The same while only time moves."""
        others = jumps.new_zeros(*durations.shape, jumps.shape[-1])
        steps = self.flow.steps(durations.unsqueeze(0), jumps.dtype)[0]
        return [(move, move, move) for move in (torch.cat([length, others], dim=-1) for length in steps)]

    def _by_rows(self, pieces: list[Piece], gaps: Tensor) -> list[list[Piece]]:
        """For each interval between rows the steps that any series has there."""
        if not gaps.numel():
            return []
        needed = [len(steps) for steps in self.flow.steps(gaps.T, gaps.dtype)]
        apart = [list(zip(*(slope.unbind(1) for slope in piece), strict=True)) for piece in pieces]
        return [[piece[row] for piece in apart[:count]] for row, count in enumerate(needed)]


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

    def forward(
        self, z: Float[Tensor, "*shape d"], step: Float[Tensor, "*shape channels"]
    ) -> Float[Tensor, "*shape d"]:
        """The change of z."""
        matrix = self.network(z).unflatten(-1, (-1, self.channels))
        return (matrix @ step.unsqueeze(-1)).squeeze(-1)

"""Base of the models on a regular grid: a window of fixed length, and queries as numbers of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities, QueryTimes, States
from contiformer.backbones.recurrence import Rows
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

#: The values of a window; states of its rows, and of other rows that they attend to.
WindowValues = Float[Tensor, "batch history channels"]
RowStates = Float[Tensor, "batch rows d"]
OtherStates = Float[Tensor, "batch others d"]
#: Times that are off by less than this share of a step are on the grid.
ON_GRID = 1e-3


@dataclass(frozen=True)
class Window:
    """The series of a batch as the last rows of windows of ``history`` rows; before them their first row is repeated.

    Attributes:
        values: [B, history, C]; an empty series is all zeros.
        end: [B, 1], the time of the last row.
        step: [B, 1], the time between rows; 0 where there are fewer than two.
        count: [B, 1], how many rows are real.
        rows: [B, L], the place of each row of the batch in the window.
    """

    values: WindowValues
    end: Float[Tensor, "batch 1"]
    step: Float[Tensor, "batch 1"]
    count: Int[Tensor, "batch 1"]
    rows: Int[Tensor, "batch points"]

    @classmethod
    def of(cls, batch: Batch, history: int, dtype: torch.dtype) -> Window:
        """The windows of a batch; a series that is longer, has missing channels or is irregular is an error."""
        other = "use a backbone that takes them, such as 'contiformer'"
        rows = Rows.of(batch, dtype)
        count = rows.present.sum(1, keepdim=True)
        if (longest := int(count.max()) if len(count) else 0) > history:
            raise ValueError(
                f"a series has {longest} rows, and the backbone has history={history}: "
                f"make it with history={longest}, or give the last {history} rows"
            )
        if (rows.present.unsqueeze(-1) & ~rows.observed).any():
            raise ValueError(f"a series has missing values: fill them in, or {other}")
        end = rows.times[:, -1:]
        step = (end - rows.times[:, :1]) / (count - 1).clamp(min=1)
        uneven = (rows.times.diff(dim=1) - step).abs() > ON_GRID * step
        if ((uneven | (step <= 0)) & rows.present[:, 1:]).any():
            raise ValueError(f"a series has irregular times: resample it, or {other}")
        place = torch.arange(history, device=count.device) - (history - count)
        which = place.clamp(0, rows.times.shape[1] - 1).unsqueeze(-1)
        values = rows.values.gather(1, which.expand(-1, -1, rows.values.shape[-1]))
        return cls(values, end, step, count, (history - 1 - count + rows.passed).clamp(0, history - 1))

    def places(self, query_times: Float[Tensor, "batch query"], horizon: int) -> Int[Tensor, "batch query"]:
        """The place of each query: ``history - 1`` is the last row, ``history`` the first step after it.

        Without two rows there is no step, and all later times have the place of the first one. A query off the grid,
        before the series or beyond the horizon is an error.
        """
        lead = query_times.to(self.end) - self.end
        ahead = torch.where(self.step > 0, lead / torch.where(self.step > 0, self.step, 1.0), lead.sign())
        ahead = torch.where(self.count > 0, ahead, 1.0)
        number = ahead.round()
        for wrong, why in (
            (~((ahead - number).abs() <= ON_GRID), "is not a whole number of steps from the last row: ask on the grid"),
            (number < 1 - self.count, "is before the series: ask from its first row on"),
            (number > horizon, f"is beyond the backbone's horizon={horizon}: make it with a larger one"),
        ):
            if wrong.any():
                series, query = wrong.nonzero()[0].tolist()
                at, steps = float(query_times[series, query]), float(ahead[series, query])
                raise ValueError(f"query_times has {at:g} for series {series}, {steps:g} steps ahead, which {why}")
        return self.values.shape[1] - 1 + number.long()


class WindowOptions(TypedDict, total=False):
    """Options of every :class:`RegularBackbone`."""

    n_layers: int
    dropout: float
    history: int
    horizon: int


class RegularBackbone(Backbone):
    """Base class of models that map a window of ``history`` rows to ``horizon`` steps after it.

    Each series is shown as the last rows of a :class:`Window`, so that linear maps and convolutions along time have the
    sizes that they have in the papers. A subclass computes :meth:`states`, or :meth:`within` and :meth:`ahead`.

    Deviations of all these models from their papers: there is no embedding of the calendar, because a backbone does not
    know dates; a series of fewer than ``history`` rows is preceded by its first row, repeated.

    Args:
        input_size: channels C.
        d_model, n_layers, dropout: the usual sizes, the layers those of the encoder. Models with attention also have
            n_heads, d_ff (width of the feed-forward blocks, None: ``4 * d_model``) and decoder_layers.
        history: rows of a window; longer series are refused.
        horizon: steps after its end that can be asked for.

    Shapes: values [B, L, C] -> [B, Q, d_model].

    Example:
        >>> import torch
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.5, 1], [[1.0], [2.0], [4.0]])])
        >>> later = torch.tensor([[1.5, 2.0]], dtype=torch.float64)
        >>> make_backbone("dlinear", 1, d_model=4, history=3, horizon=2)(batch, later).shape
        torch.Size([1, 2, 4])
    """

    capabilities = Capabilities(irregular=False, missing=False)
    fixed_window = True

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 2,
        dropout: float = 0.1,
        history: int = 96,
        horizon: int = 24,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        for name, size, least in (("history", history, 2), ("horizon", horizon, 1)):
            if size < least:
                raise ValueError(f"{name} must be {least} or more, got {size}")
        if self.forecasts and d_model < input_size:
            raise ValueError(
                f"d_model must be at least input_size={input_size}, because states hold forecasts of all channels, "
                f"got {d_model}: make it larger"
            )
        self.n_layers, self.rate = n_layers, dropout
        self.history, self.horizon = history, horizon

    def states(self, window: WindowValues) -> States:
        """States of the rows and, behind them, of the steps ahead. A model defines this, or both methods below."""
        raise NotImplementedError(f"{type(self).__name__} must define states, or within and ahead")

    def within(self, window: WindowValues) -> States:
        """States of the rows."""
        return self.states(window)[:, : self.history]

    def ahead(self, window: WindowValues) -> States:
        """States of the steps after the last row."""
        return self.states(window)[:, self.history :]

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        """States at the query times, which have to be rows or steps after the last one."""
        window = Window.of(batch, self.history, next(self.parameters()).dtype)
        places = window.rows if query_times is None else window.places(query_times, self.horizon)
        later = places >= self.history
        if not later.any():
            states = self.within(window.values)
        elif later.all():
            states, places = self.ahead(window.values), places - self.history
        else:
            states = torch.cat([self.within(window.values), self.ahead(window.values)], dim=1)
        return states.gather(1, places.unsqueeze(-1).expand(-1, -1, self.d_model))


class WindowEmbedding(nn.Module):
    """The value embedding and positions of Informer and its successors, for windows of ``length`` rows.

    ``x_i = Σ_j W_j values_{i+j} + p_i`` over j = -1, 0, 1, with the ends of the window joined to a circle, and ``p_i =
    [sin(i / 10000^{2k/d}), cos(i / 10000^{2k/d})]``; without positions where ``length`` is 0.
    """

    positions: Tensor

    def __init__(self, input_size: int, d_model: int, dropout: float, length: int = 0) -> None:
        super().__init__()
        self.values = nn.Conv1d(input_size, d_model, 3, padding=1, padding_mode="circular", bias=False)
        nn.init.kaiming_normal_(self.values.weight, mode="fan_in", nonlinearity="leaky_relu")
        self.dropout = Dropout(dropout)
        place = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        angle = place * 10000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        both = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model]
        self.register_buffer("positions", both.to(torch.get_default_dtype()), persistent=False)

    def forward(self, values: Float[Tensor, "batch rows channels"]) -> RowStates:
        x = self.values(values.transpose(1, 2)).transpose(1, 2)
        return self.dropout(x + self.positions if len(self.positions) else x)


def randomness(training: bool, device: torch.device) -> torch.Generator | None:
    """PyTorch's own generator in training; otherwise one with the same seed at each call: answers do not change."""
    return None if training else torch.Generator(device).manual_seed(0)

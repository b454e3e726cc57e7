"""What models of a regular grid share: a window of fixed length, and queries as numbers of steps."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.recurrence import Rows, check_sizes
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

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

    Example:
        >>> from contiformer.data import Series, collate
        >>> window = Window.of(collate([Series.of([0, 0.5, 1], [[1.0], [2.0], [4.0]])]), 4, torch.float32)
        >>> window.values.flatten().tolist(), window.rows.tolist()
        ([1.0, 1.0, 2.0, 4.0], [[1, 2, 3]])
        >>> window.places(torch.tensor([[2.0, 0.5]], dtype=torch.float64), horizon=2).tolist()
        [[5, 2]]
    """

    values: Float[Tensor, "batch history channels"]
    end: Float[Tensor, "batch 1"]
    step: Float[Tensor, "batch 1"]
    count: Int[Tensor, "batch 1"]
    rows: Int[Tensor, "batch points"]

    @classmethod
    def of(cls, batch: Batch, history: int, dtype: torch.dtype) -> Window:
        """The windows of a batch, with values in ``dtype``.

        Raises:
            ValueError: if a series is longer than the window, has missing channels, or is not on a regular grid.
        """
        rows = Rows.of(batch, dtype)
        count = rows.present.sum(1, keepdim=True)
        if (longest := int(count.max()) if len(count) else 0) > history:
            raise ValueError(
                f"a series has {longest} rows, and the backbone has history={history}: "
                f"make it with history={longest}, or give the last {history} rows"
            )
        if (rows.present.unsqueeze(-1) & ~rows.observed).any():
            raise ValueError(
                "a series has missing values: fill them in, or use a backbone that takes them, such as 'contiformer'"
            )
        end = rows.times[:, -1:]
        step = (end - rows.times[:, :1]) / (count - 1).clamp(min=1)
        uneven = (rows.times.diff(dim=1) - step).abs() > ON_GRID * step
        if ((uneven | (step <= 0)) & rows.present[:, 1:]).any():
            raise ValueError(
                "a series has irregular times: resample it, or use a backbone that takes them, such as 'contiformer'"
            )
        place = torch.arange(history, device=count.device) - (history - count)
        which = place.clamp(0, rows.times.shape[1] - 1).unsqueeze(-1)
        values = rows.values.gather(1, which.expand(-1, -1, rows.values.shape[-1]))
        return cls(values, end, step, count, (history - 1 - count + rows.passed).clamp(0, history - 1))

    def places(self, query_times: Float[Tensor, "batch query"], horizon: int) -> Int[Tensor, "batch query"]:
        """The place of each query: ``history - 1`` is the last row, ``history`` the first step after it.

        Without two rows there is no step, and all later times have the place of the first one.

        Raises:
            ValueError: naming the first query that is off the grid, before the series or beyond the horizon.
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


class RegularBackbone(Backbone):
    """Base class of models that map a window of ``history`` rows to ``horizon`` steps after it.

    A subclass says what the states of the rows and of the steps ahead are. Each series is shown as :class:`Window`
    shows it, so that linear maps and convolutions along time have the sizes that they have in the papers.

    Args:
        input_size, d_model, n_layers: the usual sizes.
        history: rows of a window; longer series are refused.
        horizon: steps after its end that can be asked for.
    """

    #: Whether the states of the steps ahead begin with the model's own forecasts of the channels, in their order.
    forecasts: bool = False
    #: What its paper does to a window before the model and undoes after it, as Forecasting's option of this name.
    normalize: str = "none"
    #: Whether its paper shows it the calendar, as Forecasting's option of this name does.
    calendar: bool = True

    def __init__(self, input_size: int, d_model: int, n_layers: int, history: int, horizon: int) -> None:
        super().__init__()
        check_sizes(input_size, d_model, n_layers)
        for name, size, least in (("history", history, 2), ("horizon", horizon, 1)):
            if size < least:
                raise ValueError(f"{name} must be {least} or more, got {size}")
        if self.forecasts and d_model < input_size:
            raise ValueError(
                f"d_model must be at least input_size={input_size}, because states hold forecasts of all channels, "
                f"got {d_model}: make it larger"
            )
        self.d_model, self.history, self.horizon = d_model, history, horizon
        self.capabilities = Capabilities(irregular=False, missing=False)

    @abstractmethod
    def within(self, window: Float[Tensor, "batch history channels"]) -> Float[Tensor, "batch history d"]:
        """States of the rows."""

    @abstractmethod
    def ahead(self, window: Float[Tensor, "batch history channels"]) -> Float[Tensor, "batch horizon d"]:
        """States of the steps after the last row."""

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
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
    """``x_i = Σ_j W_j values_{i+j} + p_i`` over j = -1, 0, 1, with the ends of the window joined to a circle.

    ``p_i = [sin(i / 10000^{2k/d}), cos(i / 10000^{2k/d})]``. The value embedding and positions of Informer, which its
    successors took over.

    Args:
        input_size, d_model, dropout: sizes, and the dropout of the result.
        length: rows that it is made for; 0: without positions.

    Shapes: [B, N, C] -> [B, N, d].
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

    def forward(self, values: Float[Tensor, "batch rows channels"]) -> Float[Tensor, "batch rows d"]:
        """Values as vectors."""
        x = self.values(values.transpose(1, 2)).transpose(1, 2)
        return self.dropout(x + self.positions if len(self.positions) else x)


def check_heads(d_model: int, n_heads: int) -> None:
    """Refuse heads that do not divide the width."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model={d_model}, got {n_heads}: choose another of the two")


def randomness(training: bool, device: torch.device) -> torch.Generator | None:
    """PyTorch's own in training; otherwise one that begins anew at each call, so that answers do not change."""
    return None if training else torch.Generator(device).manual_seed(0)

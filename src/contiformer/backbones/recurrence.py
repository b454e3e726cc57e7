"""Recurrences over irregular rows: rows without padding, the state after the last row, a GRU update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.data.batch import Batch
from contiformer.nn.observations import valid_first

#: How many rows lie before each query.
Passed = Int[Tensor, "batch query"]


@dataclass(frozen=True)
class Rows:
    """The rows of a batch in which anything was observed, moved to the front of each series; at least one row.

    A causal recurrence may run over all of them: rows behind the last real one change no state before them.

    Attributes:
        times: [B, N]; behind the last real row its time is repeated, and an empty series has zeros.
        values: [B, N, C], 0 where not observed.
        observed: [B, N, C].
        present: [B, N], True at real rows.
        passed: [B, L], how many real rows there are up to each row of the batch, that one included.
    """

    times: Float[Tensor, "batch rows"]
    values: Float[Tensor, "batch rows channels"]
    observed: Bool[Tensor, "batch rows channels"]
    present: Bool[Tensor, "batch rows"]
    passed: Int[Tensor, "batch points"]

    @classmethod
    def of(cls, batch: Batch, dtype: torch.dtype) -> Rows:
        """The rows of a batch, with values in ``dtype``."""
        times, values, observed = batch.times, batch.values, batch.observed
        passed = observed.any(-1).cumsum(1)
        if times.shape[1] == 0:
            times, values, observed = F.pad(times, (0, 1)), F.pad(values, (0, 0, 0, 1)), F.pad(observed, (0, 0, 0, 1))
        real = observed.any(-1)
        count = real.sum(1, keepdim=True)
        order = valid_first(real)
        place = torch.arange(real.shape[1], device=real.device)
        present = place < count
        # a time of padding may be anything, so it is replaced before it is computed with
        last = torch.minimum(place, (count - 1).clamp(min=0))
        times = torch.where(count > 0, times.gather(1, order.gather(1, last)), 0.0)
        wide = order.unsqueeze(-1).expand_as(observed)
        observed = observed.gather(1, wide)
        values = torch.where(observed, values.gather(1, wide), 0.0).to(dtype)
        return cls(times, values, observed, present, passed)

    @property
    def inputs(self) -> Float[Tensor, "batch rows features"]:
        """Values, and behind them the observation mask."""
        return torch.cat([self.values, self.observed.to(self.values.dtype)], dim=-1)

    def inputs_and(self, gaps: Float[Tensor, "batch rows"]) -> Float[Tensor, "batch rows features"]:
        """The same, and behind them a number for the gap before each row."""
        return torch.cat([self.inputs, gaps.to(self.values.dtype).unsqueeze(-1)], dim=-1)

    @property
    def gaps(self) -> Float[Tensor, "batch rows"]:
        """Time since the row before; 0 at the first."""
        return torch.diff(self.times, dim=1, prepend=self.times[:, :1])

    def until(self, query_times: Float[Tensor, "batch query"]) -> tuple[Passed, Float[Tensor, "batch query"]]:
        """The number of rows at or before each query, and the time since the last of them; 0 where there is none."""
        query = query_times.to(self.times)
        known = self.times.masked_fill(~self.present, torch.inf)
        passed = torch.searchsorted(known, query.contiguous(), right=True)
        since = query - self.times.gather(1, (passed - 1).clamp(min=0))
        return passed, torch.where(passed > 0, since, 0.0)


def state_after(states: Inexact[Tensor, "batch rows d"], passed: Passed) -> Inexact[Tensor, "batch query d"]:
    """The state after so many rows; zeros, where every recurrence begins, after none."""
    last = (passed - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
    return states.gather(1, last) * (passed > 0).unsqueeze(-1)


def gru(input_size: int, d_model: int, n_layers: int, dropout: float) -> nn.GRU:
    """PyTorch's GRU over rows, with dropout between its layers."""
    return nn.GRU(input_size, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0)


class GatedUpdate(nn.Module):
    """The GRU update of Cho et al. (2014), its input part computed for all rows at once.

    ``z, r = σ(W_zr x + U_zr h + b_zr)``, ``h̃ = tanh(W x + U (r ⊙ h) + b)``, ``h ← (1 - z) ⊙ h + z ⊙ h̃``. Unlike in
    ``torch.nn.GRU``, the reset gate acts before the matrix, and z is the share of the new.

    Shapes: x [B, N, input_size]; h [B, d].
    """

    def __init__(self, input_size: int, d_model: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(input_size, 3 * d_model)
        self.gates = nn.Linear(d_model, 2 * d_model, bias=False)
        self.candidate = nn.Linear(d_model, d_model, bias=False)
        for weight in (self.gates.weight, self.candidate.weight):
            for square in weight.data.split(d_model):
                nn.init.orthogonal_(square)

    def inputs(self, x: Float[Tensor, "batch rows input"]) -> list[tuple[Tensor, Tensor]]:
        """For each row what the gates and the candidate get from the input: [B, 2d] and [B, d]."""
        width = self.candidate.in_features
        gates, candidate = self.from_input(x.transpose(0, 1)).split([2 * width, width], dim=-1)
        return list(zip(gates.unbind(0), candidate.unbind(0), strict=True))

    def forward(self, h: Float[Tensor, "batch d"], row: tuple[Tensor, Tensor]) -> Float[Tensor, "batch d"]:
        """The state after a row, from the state before it."""
        gates, candidate = row
        z, r = (gates + self.gates(h)).sigmoid().chunk(2, dim=-1)
        # the state keeps its precision, whatever autocast makes of the products
        return torch.lerp(h, (candidate + self.candidate(r * h)).tanh().to(h.dtype), z.to(h.dtype))

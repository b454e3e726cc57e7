"""Multi-time attention networks."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.backbones.base import Backbone, QueryTimes, States
from contiformer.backbones.recurrence import Rows, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

Queries = Float[Tensor, "batch query"]
RowTimes = Float[Tensor, "batch rows"]
RowValues = Float[Tensor, "batch rows channels"]
RowMarks = Bool[Tensor, "batch rows channels"]
Sees = Bool[Tensor, "batch query rows"]
#: Frequencies of the time embedding at the start, in radians per unit of time.
_LOW, _HIGH = 1.0, 100.0


class MultiTimeAttention(nn.Module):
    """Each channel, smoothed at any time by attention that depends on times alone.

    ``φ_h(t) = [ω_h0 t + α_h0, sin(ω_h1 t + α_h1), ...]``, ``κ_h(t, s) = exp(φ_h(t) w_h (φ_h(s) v_h)ᵀ / √d)``,
    ``x̂_hc(t) = Σ_i κ_h(t, t_i) x_ic / Σ_i κ_h(t, t_i)`` over the rows i in which channel c was observed, and the
    output is a linear map of all ``x̂_hc(t)`` and of whether each channel was observed at all.

    All channels share the scores, so their sums are matrix products; there is no tensor over query, row and channel.

    Shapes: query_times [B, Q], times [B, N], values and observed [B, N, C], sees [B, Q, N] (None: all) -> [B, Q, size].

    Example:
        >>> import torch
        >>> from contiformer.backbones import MultiTimeAttention
        >>> times, values = torch.rand(2, 7), torch.randn(2, 7, 3)
        >>> MultiTimeAttention(3, 16)(torch.rand(2, 4), times, values, torch.ones(2, 7, 3, dtype=torch.bool)).shape
        torch.Size([2, 4, 16])
    """

    def __init__(self, channels: int, size: int, heads: int = 1, time_features: int = 128) -> None:
        super().__init__()
        speed = torch.logspace(math.log10(_LOW), math.log10(_HIGH), time_features)
        self.speed = nn.Parameter(speed.repeat(heads, 1))
        self.phase = nn.Parameter(2 * math.pi * torch.rand(heads, time_features))
        # near one, so that attention begins as a bump around the query, and does not have to find time first
        start = torch.eye(time_features).expand(2, heads, -1, -1)
        self.weights = nn.Parameter(start + 0.02 * torch.randn(2, heads, time_features, time_features))
        self.out = nn.Linear(heads * channels + channels, size)

    def embedding(self, times: Float[Tensor, "batch times"]) -> Float[Tensor, "batch heads times features"]:
        """φ of every head."""
        angle = times[:, None, :, None] * self.speed[:, None] + self.phase[:, None]
        return torch.cat([angle[..., :1], angle[..., 1:].sin()], dim=-1)

    def scores(self, query_times: Queries, times: RowTimes) -> Float[Tensor, "batch heads query rows"]:
        """The logarithm of κ."""
        queries, keys = self.embedding(query_times) @ self.weights[0], self.embedding(times) @ self.weights[1]
        return queries @ keys.mT / math.sqrt(self.speed.shape[1])

    def smooth(
        self, query_times: Queries, times: RowTimes, values: RowValues, observed: RowMarks, sees: Sees | None = None
    ) -> tuple[Float[Tensor, "batch heads query channels"], Bool[Tensor, "batch query channels"]]:
        """x̂, 0 where the query sees no observation of the channel, and whether it sees any."""
        scores = self.scores(query_times, times)
        allowed = observed.any(-1).unsqueeze(1) if sees is None else sees & observed.any(-1).unsqueeze(1)
        hidden = ~allowed.unsqueeze(1)
        scores = scores.masked_fill(hidden, -torch.inf)
        top = scores.detach().amax(-1, keepdim=True)
        # a channel may be observed only where the others' scores are much larger: it must not vanish
        floor = 0.9 * math.log(torch.finfo(scores.dtype).tiny)
        kernel = (scores - top.where(top.isfinite(), 0.0)).clamp(min=floor).exp().masked_fill(hidden, 0.0)
        marks = observed.to(values.dtype)
        sums = kernel.flatten(1, 2) @ torch.cat([torch.where(observed, values, 0.0), marks], dim=-1)
        total, weight = sums.unflatten(1, kernel.shape[1:3]).chunk(2, dim=-1)
        known = weight > 0
        return total / weight.where(known, 1.0), known[:, 0]

    def forward(
        self, query_times: Queries, times: RowTimes, values: RowValues, observed: RowMarks, sees: Sees | None = None
    ) -> Float[Tensor, "batch query size"]:
        smoothed, known = self.smooth(query_times, times, values, observed, sees)
        return self.out(torch.cat([smoothed.transpose(1, 2).flatten(2), known.to(values.dtype)], dim=-1))


class MTAN(Backbone):
    """Multi-time attention network (Shukla & Marlin, Multi-Time Attention Networks, ICLR 2021).

    As mTAND: :class:`MultiTimeAttention` from reference times to the observed values, a bidirectional GRU over the
    reference times, a second multi-time attention from the query times to the GRU's states, and a small network.

    With ``causal=True`` there are no reference times, which would see the future. Attention at ``t_i`` is limited to
    the rows up to i, and a GRU runs over the rows (in the original so for the labels of each time in human activity):
    ``h_i = GRU(m(t_i), h_{i-1})``. At a query ``t`` that sees i rows the last step is taken at t instead, ``h(t) =
    GRU(m(t), h_{i-1})``, so that the state after row i is the one at ``t = t_i``.

    Deviations:
        - States are those of mTAND-Full's decoder, without its latent variable.
        - Reference times are evenly spread over each series, from its first to its last observation, not over [0, 1].
        - Frequencies of the time embedding begin between 1 and 100, and ``w_h`` and ``v_h`` near one, so attention
          begins as a bump around the query; in the authors' code it begins as nearly a plain mean.
        - Each head has its own embedding, as in the paper; in the code heads share one.

    Args:
        n_heads, time_features: of both attentions; the authors use 1 and 128.
        references: reference times (64 and 128 in the authors' commands).

    Example:
        >>> import torch
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [3.0]])])
        >>> make_backbone("mtan", input_size=1, d_model=16)(batch, torch.rand(1, 4).double()).shape
        torch.Size([1, 4, 16])
    """

    citation = "Shukla and Marlin, Multi-Time Attention Networks, ICLR 2021"
    causal_option = True

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.1,
        n_heads: int = 1,
        time_features: int = 128,
        references: int = 64,
        causal: bool = False,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        for name, size, least in (
            ("n_heads", n_heads, 1), ("time_features", time_features, 2), ("references", references, 1)
        ):  # fmt: skip
            if size < least:
                raise ValueError(f"{name} must be at least {least}, got {size}")
        self.references, self.capabilities = references, self.capabilities_for(causal=causal)
        self.attention = MultiTimeAttention(input_size, d_model, n_heads, time_features)
        self.dropout = Dropout(dropout)
        ways = 1 if causal else 2
        widths = [d_model] + [ways * d_model] * n_layers
        # single layers, because a query of the causal model starts from the state of each
        self.recurrent = nn.ModuleList(
            nn.GRU(below, d_model, batch_first=True, bidirectional=not causal) for below, _ in pairwise(widths)
        )
        self.decoder = None if causal else MultiTimeAttention(2 * d_model, d_model, n_heads, time_features)
        self.out = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, d_model))

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, self.attention.out.weight.dtype)
        if self.decoder is None:
            return self.out(self._causal(rows, query_times))
        if query_times is None:
            query_times = torch.where(batch.observed.any(-1), batch.times, 0.0)
        dtype = rows.values.dtype
        share = torch.linspace(0, 1, self.references, dtype=dtype, device=rows.values.device)
        first, last = (rows.times[:, [end]].to(share) for end in (0, -1))
        reference = first + share * (last - first)
        x = self.attention(reference, rows.times.to(dtype), rows.values, rows.observed)
        for gru in self.recurrent:
            x, _ = gru(self.dropout(x))
        return self.out(self.decoder(query_times.to(dtype), reference, x, torch.ones_like(x, dtype=torch.bool)))

    def _causal(self, rows: Rows, query_times: Tensor | None) -> Float[Tensor, "batch query d"]:
        count = torch.arange(1, rows.times.shape[1] + 1, device=rows.times.device).expand_as(rows.times)
        x = self._past(rows, rows.times, count)
        if query_times is None:
            for gru in self.recurrent:
                x, _ = gru(self.dropout(x))
            return state_after(x, rows.passed)
        passed, _ = rows.until(query_times)
        now = self._past(rows, query_times, passed)
        for gru in self.recurrent:
            x, _ = gru(self.dropout(x))
            before = state_after(x, passed - 1)
            step, _ = gru(self.dropout(now).flatten(0, 1).unsqueeze(1), before.flatten(0, 1).unsqueeze(0))
            now = step.view_as(before)
        return now

    def _past(self, rows: Rows, times: Tensor, passed: Tensor) -> Float[Tensor, "batch query d"]:
        """Attention at times of which each sees so many rows."""
        dtype = rows.values.dtype
        sees = torch.arange(rows.times.shape[1], device=rows.times.device) < passed.unsqueeze(-1)
        return self.attention(times.to(dtype), rows.times.to(dtype), rows.values, rows.observed, sees)

"""One layer of the continuous-time transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.nn.attention import ContinuousAttention
from contiformer.nn.dropout import Dropout
from contiformer.nn.observations import Observations
from contiformer.paths.interpolation import interpolate

NormPlace = Literal["end", "entry"]


class ContiFormerLayer(nn.Module):
    """One transformer layer with continuous-time attention, evaluated at any times.

    ``z̃(t) = LN(attention(t) + x(t))``, ``z(t) = LN(FFN(z̃(t)) + z̃(t))``.

    The residual ``x(t)`` is the path through the inputs ``X_i``, interpolated as the attention's queries are. With an
    ``encoding`` of time, the path goes through ``X_i - encoding(t_i)`` and ``encoding(t)`` is added at ``t`` itself:
    at the observations this is ``X_i`` as in the paper, and between and beyond them the query still knows its own
    time. A causal layer holds the last known input instead of interpolating towards the next one.

    With ``norm="entry"`` the last norm stands before attention instead: ``z̃(t) = LN(attention of LN(X) + x(t))``,
    ``z(t) = FFN(z̃(t)) + z̃(t)``. Then states differ in size too, which a pooled answer can use.

    Args:
        d_model, n_heads: width and heads.
        d_ff: width of the feed-forward block (None: ``4 * d_model``).
        dropout: after attention and feed-forward, and of the attention weights.
        norm: "end", as in the paper, or "entry".
        attention: options of :class:`~contiformer.nn.ContinuousAttention`.

    Example:
        >>> import torch
        >>> from contiformer.nn import ContiFormerLayer
        >>> layer, times = ContiFormerLayer(d_model=16, n_heads=2), torch.rand(3, 10).sort().values
        >>> layer(torch.randn(3, 10, 16), times, query_times=torch.rand(3, 4)).shape
        torch.Size([3, 4, 16])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int | None = None,
        dropout: float = 0.1,
        *,
        norm: NormPlace = "end",
        **attention: Any,
    ) -> None:
        super().__init__()
        if norm not in get_args(NormPlace):
            raise ValueError(f"norm must be one of {', '.join(get_args(NormPlace))}, got {norm!r}")
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.attention = ContinuousAttention(d_model, n_heads, dropout=dropout, **attention)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.GELU(), Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        # without a scale of its own: projections follow
        self.entry_norm = nn.LayerNorm(d_model, elementwise_affine=False) if norm == "entry" else nn.Identity()
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model) if norm == "end" else nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch obs d"],
        times: Float[Tensor, "batch obs"],
        query_times: Float[Tensor, "batch query"] | None = None,
        mask: Bool[Tensor, "batch obs"] | None = None,
        encoding: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "batch query d"]:
        """The layer's output at ``query_times`` (None: at ``times``, zero in masked rows)."""
        attended = self.dropout(self.attention(self.entry_norm(x), times, query_times, mask))
        base = x if query_times is None else self._input_path(x, times, query_times, mask, encoding)
        z = self.after_attention(attended, base)
        if query_times is None and mask is not None:
            z = torch.where(mask[..., None], z, 0.0)
        return z

    def after_attention(self, attended: Float[Tensor, "*shape d"], base: Float[Tensor, "*shape d"]) -> Tensor:
        """The output, from what attention gives and the residual."""
        z = self.attention_norm(attended + base.to(attended.dtype))
        return self.feed_forward_norm(z + self.dropout(self.feed_forward(z)))

    def _input_path(
        self,
        x: Tensor,
        times: Tensor,
        queries: Tensor,
        mask: Tensor | None,
        encoding: Callable[[Tensor], Tensor] | None,
    ) -> Float[Tensor, "batch query d"]:
        now = 0.0 if encoding is None else encoding(queries).to(x.dtype)
        if times.shape[1] == 0:
            return x.new_zeros(*queries.shape, x.shape[-1]) + now
        seen = Observations.of(x, times, queries, mask)
        knots = seen.x if encoding is None else seen.x - encoding(seen.times).to(x.dtype)
        path = interpolate(self.attention.interpolation, seen.times, knots, seen.lengths, distinct=seen.distinct)
        assert seen.query_times is not None
        if not self.attention.rule.causal:
            known, some = seen.query_times, seen.valid.any(1, keepdim=True)
        else:
            known, some = seen.last_known(seen.query_times)
        return torch.where(some.unsqueeze(-1), path(known), 0.0) + now

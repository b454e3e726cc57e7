"""The continuous-time attention of the paper as a module."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal, overload

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor, nn

from contiformer.nn.attention_inputs import Keys
from contiformer.nn.eager import run_eagerly
from contiformer.nn.fields import Activation, FieldName, make_field, stack_fields
from contiformer.nn.heads import join_heads, split_heads
from contiformer.nn.observations import Observations
from contiformer.nn.pairwise import pairwise_attention
from contiformer.nn.rules import AttentionRule, RuleName
from contiformer.nn.spectral import spectral_attention
from contiformer.paths.interpolation import INTERPOLATIONS, Interpolation, PiecewisePolynomial, interpolate
from contiformer.paths.trajectories import (
    Pieces,
    ResolutionWarning,
    Trajectories,
    fixed_pieces,
    solve_trajectories,
    warn_unresolved,
    window_pieces,
)

Method = Literal["spectral", "pairwise"]

#: ``degree="auto"``: the degrees tried one after the other, and the tail up to which a sequence counts as resolved.
AUTO_DEGREES = (7, 15, 31)
CAUSAL_DEGREE = 11
RESOLVED = 5e-4
#: A piece where it is not said how long. A sequence spans about 1, and its clock may be warped in training: where it is
#: asked at its own points only, one piece for all of it is three times faster than two. Other times that are asked for
#: must not change an answer more than they do with short pieces.
PIECE, PIECE_AT_POINTS = 1.0, 1.5
MAX_PIECES = 64
MAX_CAUSAL_PIECES = 4096


@dataclass(frozen=True)
class _Asked:
    """What a pass is about: observations, the path of the queries, keys and values [B, N, d], and how to attend."""

    seen: Observations
    path: PiecewisePolynomial
    k: Tensor
    v: Tensor
    rule: AttentionRule
    return_weights: bool

    def select(self, index: Int[Tensor, " some"]) -> _Asked:
        """The same for some of the sequences."""
        path = PiecewisePolynomial(self.path.knots[index], self.path.coefficients[index])
        return replace(self, seen=self.seen.select(index), path=path, k=self.k[index], v=self.v[index])


class ContinuousAttention(nn.Module):
    r"""Multi-head attention over continuous time.

    Every observation ``i`` at time ``t_i`` starts a key and a value trajectory, ``dk_i/dt = f(t, k_i)``,
    ``k_i(t_i) = K_i`` (the same for ``v``); the queries ``Q_i`` are knots of a path ``q(t)``. At any time ``u``

        α_i(u) = 1/(u - t_i) ∫_{t_i}^u q(τ)·k_i(τ) dτ,     α_i(t_i) = q(t_i)·K_i
        v̂_i(u) = 1/(u - t_i) ∫_{t_i}^u v_i(τ) dτ,          v̂_i(t_i) = V_i
        out(u) = W_O concat_heads Σ_i softmax_i(α_i(u) / √d_k) v̂_i(u)

    Args:
        d_model, n_heads: width and number of heads; ``n_heads`` divides ``d_model``.
        rule: "exact", "linear" or "gauss" (with ``points`` 2 to 5), see :class:`~contiformer.nn.rules.AttentionRule`.
        interpolation: of the query: "linear", "cubic" (natural spline; not causal) or "hermite" (backward differences).
        field: "concatnorm", "concat", "linear", or any module ``f(t, x)`` with t [..., 1] and x [..., d_model], of
            which keys and values get a copy each.
        activation: of the named fields, "tanh" or "sigmoid".
        method: "spectral" solves one ODE per observation; "pairwise" is the paper's algorithm, one per pair.
        degree: of the polynomials that represent a trajectory on a piece. "auto" starts at 7 and doubles it for every
            sequence that is not resolved, up to 31, then warns; with ``causal=True`` it is 11 and stays there, because
            a degree that depends on the data would let the future choose how the past is computed. A number is
            used as it is, with a :class:`~contiformer.paths.trajectories.ResolutionWarning` where it does not do.
        piece_length: the longest piece of time that one polynomial has to represent, in the unit of ``times``. Longer
            windows are cut into pieces. None: 1; 1.5 where queries are at the observations and not causal.
        step_size: of the Runge-Kutta solver of "pairwise", on [-1, 1].
        causal: attend only to observations at or before the query's time. Between observations the query path holds its
            last known value.
        dropout: of the attention weights.
        continuous_scores, continuous_values, normalize_scores, normalize_values: the paper's ablations.

    Shapes:
        x [B, N, d_model], times [B, N] (not decreasing), query_times [B, Q] in any order (None: ``times``),
        mask [B, N] with True = observed -> [B, Q, d_model]; with ``return_weights=True`` also the weights [B, H, Q, N].

    Rows that are masked are neither keys nor knots, and their times and values are not looked at; where the queries are
    the times, their output is zero. A query that may attend to nothing (no observation, or none before it in a
    causal model) attends to a value of zero, so its output is the bias of ``out_proj``. Observations at equal times
    are legal: both are keys, and the query there is the mean of theirs.

    Times may be float64 when everything else is float32: differences of times are taken in the precision they come in.
    Gradients flow to ``query_times``; ``times`` that require a gradient are refused with method "spectral".

    Example:
        >>> import torch
        >>> from contiformer.nn import ContinuousAttention
        >>> attention = ContinuousAttention(32, 4)
        >>> times = torch.rand(2, 10).sort().values
        >>> attention(torch.randn(2, 10, 32), times, query_times=torch.rand(2, 5)).shape
        torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        rule: RuleName = "exact",
        points: int = 3,
        interpolation: Interpolation = "linear",
        field: FieldName | nn.Module = "concatnorm",
        activation: Activation = "tanh",
        method: Method = "spectral",
        degree: Literal["auto"] | int = "auto",
        piece_length: float | None = None,
        step_size: float = 0.1,
        causal: bool = False,
        dropout: float = 0.0,
        continuous_scores: bool = True,
        continuous_values: bool = True,
        normalize_scores: bool = True,
        normalize_values: bool = True,
    ) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model, got d_model={d_model} and n_heads={n_heads}")
        if method not in ("spectral", "pairwise"):
            raise ValueError(f"method must be 'spectral' or 'pairwise', got {method!r}")
        if interpolation not in INTERPOLATIONS:
            raise ValueError(f"interpolation must be one of {INTERPOLATIONS}, got {interpolation!r}")
        if causal and interpolation == "cubic":
            raise ValueError(
                "interpolation='cubic' depends on future observations, so it is never causal: use 'linear' or 'hermite'"
            )
        if degree != "auto" and (not isinstance(degree, int) or isinstance(degree, bool) or degree < 1):
            raise ValueError(f"degree must be 'auto' or a positive integer, got {degree!r}")
        if not 0 < step_size <= 2:
            raise ValueError(f"step_size must be in (0, 2], the interval it divides, got {step_size!r}")
        if piece_length is not None and not 0 < piece_length < float("inf"):
            raise ValueError(f"piece_length must be positive and finite, got {piece_length!r}")
        self.rule = AttentionRule(
            rule, points, causal, continuous_scores, continuous_values, normalize_scores, normalize_values, dropout
        )
        self.d_model, self.n_heads = d_model, n_heads
        self.interpolation, self.method, self.degree = interpolation, method, degree
        self.piece_length, self.step_size = piece_length, float(step_size)
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.key_field = make_field(field, d_model, activation)
        self.value_field = make_field(field, d_model, activation)

    def extra_repr(self) -> str:
        """The options that no submodule shows."""
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, {self.rule}, interpolation={self.interpolation!r}, "
            f"method={self.method!r}, degree={self.degree!r}"
        )

    @overload
    def forward(
        self,
        x: Tensor,
        times: Tensor,
        query_times: Tensor | None = None,
        mask: Tensor | None = None,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        times: Tensor,
        query_times: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    # torch.compile takes the rest of a model and leaves this as it is: the passes below are compiled by hand already,
    # and how far the degree is raised depends on the data
    @run_eagerly
    def forward(
        self,
        x: Float[Tensor, "batch obs d"],
        times: Real[Tensor, "batch obs"],
        query_times: Real[Tensor, "batch query"] | None = None,
        mask: Bool[Tensor, "batch obs"] | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from ``query_times`` to the observations, see the class."""
        seen = Observations.of(x, times, query_times, mask, self.d_model)
        if times.requires_grad and self.method == "spectral" and self.rule.continuous:
            raise ValueError(
                "times require a gradient, which method='spectral' does not give: detach them, use query_times for the "
                "derivative of the output in time, or method='pairwise'"
            )
        projected = [proj(seen.x) for proj in (self.q_proj, self.k_proj, self.v_proj)]
        # integrals and softmax in at least float32, whatever autocast makes of the projections
        work = torch.promote_types(projected[0].dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (p.to(work) for p in projected)
            mixed, weights = self._attend(seen, q, k, v, return_weights)
        out = self.out_proj(mixed.to(projected[0].dtype))
        if query_times is None and mask is not None:
            out = seen.to_input_order(out)
            weights = None if weights is None else seen.to_input_order(weights, 2)
        if weights is None:
            return out
        return out, seen.to_input_order(weights, 3)

    def _attend(
        self, seen: Observations, q: Tensor, k: Tensor, v: Tensor, return_weights: bool
    ) -> tuple[Float[Tensor, "batch query d"], Tensor | None]:
        batch, obs = seen.times.shape
        rule = self.rule if self.training else replace(self.rule, dropout=0.0)
        queries = seen.times if seen.query_times is None else seen.query_times
        if 0 in (batch, obs, queries.shape[1]):
            shape = (batch, self.n_heads, queries.shape[1], obs)
            return q.new_zeros(batch, queries.shape[1], self.d_model), q.new_zeros(shape) if return_weights else None
        path = interpolate(self.interpolation, seen.times, q, seen.lengths, distinct=seen.distinct)
        if self._may_move_ties(seen):
            apart = seen.ties_apart()
            if apart is not None:
                path = interpolate("linear", apart.times, path(seen.times), apart.lengths, distinct=apart.distinct)
                seen = apart
        weights: Tensor | None
        if self.method == "pairwise":
            out, weights = pairwise_attention(
                path, k, v, seen, self.key_field, self.value_field, rule, self.n_heads, self.step_size
            )
        else:
            out, weights = self._spectral(_Asked(seen, path, k, v, rule, return_weights))
        return join_heads(out), weights if return_weights else None

    def _may_move_ties(self, seen: Observations) -> bool:
        """Whether equal times can be moved apart unnoticed: by a linear path and where nobody asks who was first."""
        plain = self.method == "spectral" and self.interpolation == "linear" and not self.rule.causal
        return plain and seen.query_times is None and not seen.distinct_knots

    def _spectral(self, asked: _Asked, level: int = 0) -> tuple[Tensor, Tensor | None]:
        """Solve the trajectories and attend; sequences that are not resolved go through again at a higher degree."""
        seen, rule = asked.seen, asked.rule
        automatic = self.degree == "auto" and not rule.causal
        degree = AUTO_DEGREES[level] if automatic else CAUSAL_DEGREE if self.degree == "auto" else int(self.degree)
        solved, pieces = self._trajectories(seen, asked.k, asked.v, rule, degree)
        coarse = None if solved is None else _coarse(solved, seen, rule.causal)
        if solved is not None and coarse is not None:
            if automatic and level + 1 < len(AUTO_DEGREES):
                return self._refine(asked, level, coarse[0], solved if _worth_keeping(*coarse) else None)
            advice = f"Raise degree above {degree}, pass a smaller piece_length than {self._piece(seen):g}, "
            warn_unresolved(coarse[1], degree, advice + "or scale the times so that a sequence spans less.")
        return self._attend_solved(asked, solved, pieces)

    def _attend_solved(
        self, asked: _Asked, solved: Trajectories | None, pieces: Pieces
    ) -> tuple[Tensor, Tensor | None]:
        seen, rule = asked.seen, asked.rule
        keys = self._keys(seen, asked.k, asked.v, solved, pieces, rule)
        return spectral_attention(
            asked.path,
            keys,
            seen.query_times,
            rule,
            distinct=seen.distinct_knots,
            return_weights=asked.return_weights,
        )

    def _refine(
        self, asked: _Asked, level: int, coarse: Bool[Tensor, " batch"], solved: Trajectories | None
    ) -> tuple[Tensor, Tensor | None]:
        """Each sequence at the degree it needs itself, so that its output does not depend on its batch mates.

        What was solved at this level serves the resolved ones; None: they are solved again without the others.
        """
        parts = []
        where = [torch.nonzero(chosen).squeeze(1) for chosen in (~coarse, coarse)]
        for index, at in zip(where, (level, level + 1), strict=True):
            if not len(index):
                continue
            some = asked.select(index)
            if at == level and solved is not None:
                chosen = solved.select(index)
                parts.append(self._attend_solved(some, chosen, chosen.pieces))
            else:
                parts.append(self._spectral(some, at))
        back = torch.argsort(torch.cat(where))
        out = torch.cat([part[0] for part in parts])[back]
        weights = [part[1] for part in parts if part[1] is not None]
        return out, torch.cat(weights)[back] if weights else None

    def _piece(self, seen: Observations) -> float:
        if self.piece_length is not None:
            return self.piece_length
        return PIECE_AT_POINTS if seen.query_times is None and not self.rule.causal else PIECE

    def _trajectories(
        self, seen: Observations, k: Tensor, v: Tensor, rule: AttentionRule, degree: int
    ) -> tuple[Trajectories | None, Pieces]:
        start, end = seen.window()
        cut, limit = (fixed_pieces, MAX_CAUSAL_PIECES) if rule.causal else (window_pieces, MAX_PIECES)
        if not rule.continuous:
            return None, Pieces(torch.stack([start, end], dim=1))
        piece = self._piece(seen)
        pieces = cut(start, end, piece, limit)
        longest = 2 * float(pieces.half_lengths.max())
        if longest > 1.001 * piece:
            warnings.warn(
                f"a window needs more than {limit} pieces of length {piece:g}: they are {longest:.3g} long "
                "and may not resolve the trajectories. Scale the times so that a sequence spans about 1, ask for times "
                "nearer to the observations, or pass a larger piece_length where the fields are slow.",
                ResolutionWarning,
                stacklevel=2,
            )
        starts, fields = [], []
        if rule.continuous_scores:
            starts, fields = [k], [self.key_field]
        if rule.continuous_values:
            starts, fields = [*starts, v], [*fields, self.value_field]
        initial = torch.stack(starts).transpose(1, 2).contiguous()
        field = stack_fields(fields, initial.dtype)
        valid = None if seen.complete else seen.valid.T
        solved = solve_trajectories(
            field, initial, seen.times.T, pieces, degree, causal=rule.causal, heads=self.n_heads, valid=valid
        )
        return solved, pieces

    def _keys(
        self,
        seen: Observations,
        k: Tensor,
        v: Tensor,
        solved: Trajectories | None,
        pieces: Pieces,
        rule: AttentionRule,
    ) -> Keys:
        series: list[Tensor | None] = [None, None]
        if solved is not None:
            curves = list(solved.series)
            series = [
                curves.pop(0) if rule.continuous_scores else None,
                curves.pop(0) if rule.continuous_values else None,
            ]
        valid = None if seen.complete else seen.valid
        key, value = split_heads(k, self.n_heads), split_heads(v, self.n_heads)
        return Keys(seen.times, valid, key, value, series[0], series[1], pieces)


def _worth_keeping(coarse: Bool[Tensor, " batch"], tail: float) -> bool:
    """Whether trajectories of a batch with these coarse ones are kept: their backward pass runs over all of them.

    That costs more than twice what solving the others again does; and a curve that ran away has no gradient of zero.
    """
    return math.isfinite(tail) and 4 * int(coarse.sum()) <= len(coarse)


def _coarse(solved: Trajectories, seen: Observations, causal: bool) -> tuple[Bool[Tensor, " batch"], float] | None:
    """Which sequences are not resolved, and the largest tail; None if all are."""
    used = seen.valid.T[None]
    if causal:
        used = used & (solved.pieces.edges.T[1:, None] > seen.times.T)
    tail = solved.tail(used)
    coarse = tail > RESOLVED
    return (coarse, float(tail.max())) if bool(coarse.any()) else None

"""The continuous-time attention of the paper as a module."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, overload

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor, nn

from contiformer.nn import kernel
from contiformer.nn.fields import Activation, FieldName, make_field, stack_fields
from contiformer.nn.heads import join_heads
from contiformer.nn.kernel import Level
from contiformer.nn.observations import Observations
from contiformer.nn.pairwise import pairwise_attention
from contiformer.nn.reference import attend
from contiformer.nn.rules import AttentionRule, RuleName
from contiformer.paths.interpolation import INTERPOLATIONS, Interpolation, PiecewisePolynomial, interpolate
from contiformer.paths.tables import traced
from contiformer.paths.trajectories import (
    Pieces,
    ResolutionWarning,
    StackedField,
    counted_pieces,
    fixed_pieces,
    nodes_for_degree,
    warn_unresolved,
    window_pieces,
)

Method = Literal["spectral", "pairwise"]

#: ``degree="auto"``: the degrees tried one after the other, and the tail up to which a sequence counts as resolved at
#: each: the error of the output is then below 1e-3 of its scale (``python -m benchmarks attention --resolution``).
AUTO_DEGREES = {7: 2e-3, 15: 1e-3, 31: 5e-4}
CAUSAL_DEGREE = 11
RESOLVED = 5e-4
#: A piece where it is not said how long. A sequence spans about 1, and its clock may be warped in training: where it is
#: asked at its own points only, one piece for all of it is three times faster than two. Other times that are asked for
#: must not change an answer more than they do with short pieces.
PIECE, PIECE_AT_POINTS = 1.0, 1.5
MAX_PIECES = 64
MAX_CAUSAL_PIECES = 4096
#: Coefficients of all trajectories: 4 GB in float32.
MAX_NUMBERS = 2**30
#: Scores of the listing beyond this many are computed in blocks of keys, and again in the backward pass.
SCORES_AT_ONCE = 2**20


@dataclass(frozen=True)
class FixedShapes:
    """Sizes that values decide on otherwise, for compilers and exporters.

    Attributes:
        pieces: of time, for every sequence; those of longer windows are longer than ``piece_length``.
        levels: how many of the automatic degrees, from the lowest on, every sequence is solved at. Each gets the first
            that resolves it, otherwise the last. None: degree 7 alone.
    """

    pieces: int = 1
    levels: int | None = None


@dataclass(frozen=True)
class _Problem:
    """Observations, the path of the queries, keys and values [B, N, d], and options of one call."""

    seen: Observations
    path: PiecewisePolynomial
    k: Tensor
    v: Tensor
    rule: AttentionRule
    return_weights: bool

    def select(self, index: Int[Tensor, " some"]) -> _Problem:
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
        field: "concatnorm", "concat", "headwise" (the paper's field for each head by itself), "linear", or any module
            ``f(t, x)`` with t [..., 1] and x [..., d_model], of which keys and values get a copy each.
        activation: of the named fields, "tanh" or "sigmoid".
        method: "spectral" solves one ODE per observation; "pairwise" is the paper's algorithm, one per pair.
        degree: of the polynomials that represent a trajectory on a piece. "auto" starts at 7 and
            solves the trajectories that are not resolved again at 15 and 31, then warns: the output's error stays below
            1e-3 of its scale. With ``causal=True`` it is 11 and stays there, because a degree that depends on the data
            would let the future choose how the past is computed. A number is used as it is, with a
            :class:`~contiformer.paths.trajectories.ResolutionWarning` where it does not do.
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
    Gradients flow to ``times`` and ``query_times``; at an observation the derivative in time is that from the right.

    Example:
        >>> import torch
        >>> from contiformer.nn import ContinuousAttention
        >>> attention = ContinuousAttention(32, 4)
        >>> times = torch.rand(2, 10).sort().values
        >>> attention(torch.randn(2, 10, 32), times, query_times=torch.rand(2, 5)).shape
        torch.Size([2, 5, 32])
    """

    #: Set by an exporter: the listing with these sizes, whatever the values are.
    shapes: FixedShapes | None = None

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
        self.key_field = make_field(field, d_model, activation, n_heads)
        self.value_field = make_field(field, d_model, activation, n_heads)

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
        projected = [proj(seen.x) for proj in (self.q_proj, self.k_proj, self.v_proj)]
        # integrals and softmax in at least float32, whatever autocast makes of the projections
        work = torch.promote_types(projected[0].dtype, torch.float32)
        device = x.device.type
        with torch.autocast("cpu" if device == "meta" else device, enabled=False):
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
        rule = self.rule if self.training or not self.rule.dropout else replace(self.rule, dropout=0.0)
        queries = seen.times if seen.query_times is None else seen.query_times
        if 0 in (batch, obs, queries.shape[1]):
            shape = (batch, self.n_heads, queries.shape[1], obs)
            return q.new_zeros(batch, queries.shape[1], self.d_model), q.new_zeros(shape) if return_weights else None
        path = interpolate(self.interpolation, seen.times, q, seen.lengths, distinct=seen.distinct)
        if self.method == "pairwise":
            out, weights = pairwise_attention(
                path, k, v, seen, self.key_field, self.value_field, rule, self.n_heads, self.step_size
            )
            return join_heads(out), weights if return_weights else None
        return self._spectral(_Problem(seen, path, k, v, rule, return_weights))

    def _levels(self, causal: bool) -> tuple[Level, ...]:
        """The degrees to try. In a causal model the data must not choose: the future would."""
        if self.degree == "auto" and not causal:
            return tuple(Level(nodes_for_degree(degree), tail) for degree, tail in AUTO_DEGREES.items())
        return (Level(nodes_for_degree(CAUSAL_DEGREE if self.degree == "auto" else int(self.degree)), RESOLVED),)

    def _spectral(self, problem: _Problem) -> tuple[Tensor, Tensor | None]:
        """Attend by the kernel or by the listing, at the degree that resolves the trajectories."""
        seen, rule, levels = problem.seen, problem.rule, self._levels(problem.rule.causal)
        pieces = self._pieces(seen, rule)
        fields = [self.key_field] * rule.continuous_scores + [self.value_field] * rule.continuous_values
        field = stack_fields(fields, problem.k.dtype)
        valid = None if seen.complete else seen.valid
        given = (problem.path, problem.k, problem.v, seen.times, valid, seen.query_times, pieces.edges, field, rule)
        if not problem.return_weights and self.shapes is None and kernel.takes(*given, self.n_heads):
            weights: Tensor | None = None
            out, tail = kernel.attend(*given, self.n_heads, levels)
        else:
            out, weights, tails = self._listed(problem, pieces, field, levels)
            tail = 0.0 if traced(tails) else float(tails.max())
        if tail != 0:
            degree = 2 * levels[-1].nodes - 1
            piece = self.piece(seen.query_times is None)
            advice = f"Raise degree above {degree}, pass a smaller piece_length than {piece:g}, "
            warn_unresolved(tail, degree, advice + "or scale the times so that a sequence spans less.")
        return out, weights

    def _listed(
        self, problem: _Problem, pieces: Pieces, field: StackedField, levels: tuple[Level, ...]
    ) -> tuple[Tensor, Tensor | None, Float[Tensor, " batch"]]:
        """The listing; sequences that are not resolved go through again at the next level.

        Output, weights on request, and the tail of each sequence, zero where it is resolved.
        """
        seen, rule = problem.seen, problem.rule
        valid = None if seen.complete else seen.valid
        given = (problem.path, problem.k, problem.v, seen.times, valid, seen.query_times, pieces.edges)
        block, weighed = None, problem.return_weights
        if self.shapes is not None and self.shapes.levels is not None:
            return self._at_every_level(problem, pieces, field, levels[: self.shapes.levels])
        if traced(problem.k):
            # no decision on values: the lowest degree is enough for most
            levels = levels[:1]
        else:
            queries = seen.times if seen.query_times is None else seen.query_times
            rows = self.n_heads * queries.numel()
            if not weighed and rows * seen.times.shape[1] > SCORES_AT_ONCE:
                block = max(1, SCORES_AT_ONCE // rows)
        out, weights, tail = attend(
            *given, field, rule, self.n_heads, levels[0].nodes, return_weights=weighed, block=block
        )
        coarse = ~(tail <= levels[0].tolerance)
        if len(levels) == 1 or not bool(coarse.any()):
            return out, weights, torch.where(coarse, tail, 0.0)
        # each sequence at the degree it needs itself, so that its output does not depend on its batch mates; what was
        # computed of the others is not kept, because its backward pass would run over all
        fine, rest = (torch.nonzero(chosen).squeeze(1) for chosen in (~coarse, coarse))
        parts = [self._listed(problem.select(rest), Pieces(pieces.edges[rest]), field, levels[1:])]
        if len(fine):
            parts.insert(0, self._listed(problem.select(fine), Pieces(pieces.edges[fine]), field, levels[:1]))
        back = torch.argsort(torch.cat([fine, rest]))
        outs, weights_of, tails = zip(*parts, strict=True)
        weights = torch.cat([w for w in weights_of if w is not None])[back] if weighed else None
        return torch.cat(outs)[back], weights, torch.cat(tails)[back]

    def _at_every_level(
        self, problem: _Problem, pieces: Pieces, field: StackedField, levels: tuple[Level, ...]
    ) -> tuple[Tensor, Tensor | None, Float[Tensor, " batch"]]:
        """The listing at all levels; each sequence gets the first that resolves it, without a decision on shapes."""
        seen = problem.seen
        valid = None if seen.complete else seen.valid
        given = (problem.path, problem.k, problem.v, seen.times, valid, seen.query_times, pieces.edges)
        weighed = problem.return_weights
        results = [
            attend(*given, field, problem.rule, self.n_heads, level.nodes, return_weights=weighed) for level in levels
        ]
        out, weights, tail = results[-1]
        tail = torch.where(tail <= levels[-1].tolerance, 0.0, tail)
        for level, (coarse, coarse_weights, coarse_tail) in reversed(list(zip(levels, results, strict=True))[:-1]):
            enough = coarse_tail <= level.tolerance
            out = torch.where(enough[:, None, None], coarse, out)
            tail = torch.where(enough, 0.0, tail)
            if weights is not None and coarse_weights is not None:
                weights = torch.where(enough[:, None, None, None], coarse_weights, weights)
        return out, weights, tail

    def pieces_for(
        self,
        x: Float[Tensor, "batch obs d"],
        times: Real[Tensor, "batch obs"],
        query_times: Real[Tensor, "batch query"] | None = None,
        mask: Bool[Tensor, "batch obs"] | None = None,
    ) -> int:
        """The number of pieces of time that :meth:`forward` needs for its arguments."""
        if 0 in times.shape or (query_times is not None and 0 in query_times.shape):
            return 1
        return self._pieces(Observations.of(x, times, query_times, mask, self.d_model), self.rule).count

    def piece(self, at_points: bool) -> float:
        """The longest piece of time, where queries are at the points or not."""
        if self.piece_length is not None:
            return self.piece_length
        return PIECE_AT_POINTS if at_points and not self.rule.causal else PIECE

    def _pieces(self, seen: Observations, rule: AttentionRule) -> Pieces:
        start, end = seen.window()
        piece = self.piece(seen.query_times is None)
        if self.shapes is not None or not rule.continuous or traced(start):
            # the number of pieces is a shape, which values must not decide on
            count = 1 if self.shapes is None or not rule.continuous else self.shapes.pieces
            if rule.causal:
                return counted_pieces(start, end, piece, count)
            return window_pieces(start, end, piece, count, count)
        if rule.causal:
            points = seen.times if seen.query_times is None else torch.cat([seen.times, seen.query_times], 1)
            return self._affordable(fixed_pieces(points.detach(), piece, MAX_CAUSAL_PIECES), seen)
        pieces = self._affordable(window_pieces(start, end, piece, MAX_PIECES), seen)
        longest = 2 * float(pieces.half_lengths.max()) if pieces.count == MAX_PIECES else 0.0
        if longest > 1.001 * piece:
            warnings.warn(
                f"a window needs more than {MAX_PIECES} pieces of length {piece:g}: they are {longest:.3g} long "
                "and may not resolve the trajectories. Scale the times so that a sequence spans about 1, ask for times "
                "nearer to the observations, or pass a larger piece_length where the fields are slow.",
                ResolutionWarning,
                stacklevel=2,
            )
        return pieces

    def _affordable(self, pieces: Pieces, seen: Observations) -> Pieces:
        """The pieces, unless the series of all trajectories on them are too many numbers."""
        terms = 2 * self._levels(self.rule.causal)[0].nodes
        needed = 2 * seen.x.numel() * pieces.count * terms
        if needed > MAX_NUMBERS:
            batch, obs = seen.times.shape
            raise ValueError(
                f"{batch} x {obs} observations on {pieces.count} pieces of time need {needed:.1e} numbers for their "
                f"trajectories, more than {MAX_NUMBERS:.1e}: pass fewer sequences at a time, shorter ones, or times "
                "that span less"
            )
        return pieces

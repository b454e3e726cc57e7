"""Attention options: the integral rule and the switches of the paper's ablations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

RuleName = Literal["exact", "linear", "gauss"]
RULES: tuple[str, ...] = get_args(RuleName)


@dataclass(frozen=True)
class AttentionRule:
    """Options of the attention integrals: quadrature rule, integrands, normalisation and causality.

    Args:
        rule: "exact", the integral; "linear", the average of the two end points; "gauss", Gauss-Legendre with
            ``points`` points between the two ends of every pair.
        points: 2 to 5, for "gauss".
        causal: attend only to observations at or before the query's time.
        continuous_scores, continuous_values: follow the trajectories; otherwise ``q(u)·K_i`` and ``V_i``.
        normalize_scores, normalize_values: the mean; otherwise ``u - t_i`` times it, which is the signed integral.
        dropout: share of attention weights set to zero.
    """

    rule: RuleName = "exact"
    points: int = 3
    causal: bool = False
    continuous_scores: bool = True
    continuous_values: bool = True
    normalize_scores: bool = True
    normalize_values: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is not a rule."""
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {RULES}, got {self.rule!r}")
        if self.rule == "gauss" and self.points not in range(2, 6):
            raise ValueError(f"points must be 2, 3, 4 or 5 for rule='gauss', got {self.points!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")

    @property
    def continuous(self) -> bool:
        """Whether any trajectory is needed."""
        return self.continuous_scores or self.continuous_values

    @property
    def normalized(self) -> bool:
        """Whether everything continuous is a mean."""
        scores = self.normalize_scores or not self.continuous_scores
        return scores and (self.normalize_values or not self.continuous_values)

    def scale(self, dk: int) -> float:
        """``1/√d_k``."""
        return dk**-0.5

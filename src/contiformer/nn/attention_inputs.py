"""Keys, values and query rows in the form in which the spectral algorithm works on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.paths.trajectories import Pieces


@dataclass(frozen=True)
class Keys:
    """The keys and values that queries attend to, in the order of their times.

    Shapes: time [B, L]; valid [B, L], None if all are; key, value [B, H, L, dk] at the observation's own time;
    key_series, value_series [B, H, L, P, M, dk], None where the discrete ones are used.
    """

    time: Float[Tensor, "batch keys"]
    valid: Bool[Tensor, "batch keys"] | None
    key: Float[Tensor, "batch heads keys dk"]
    value: Float[Tensor, "batch heads keys dv"]
    key_series: Float[Tensor, "batch heads keys pieces terms dk"] | None
    value_series: Float[Tensor, "batch heads keys pieces terms dv"] | None
    pieces: Pieces

    def rearranged(self, index: Int[Tensor, "batch points"], time: Tensor, valid: Tensor) -> Keys:
        """The same keys at the given positions."""

        def pick(x: Tensor | None) -> Tensor:
            assert x is not None
            shape = (-1, x.shape[1], -1, *x.shape[3:])
            return x.gather(2, index.view(index.shape[0], 1, -1, *([1] * (x.dim() - 3))).expand(shape))

        return replace(
            self,
            time=time,
            valid=valid,
            key=pick(self.key),
            value=pick(self.value),
            key_series=None if self.key_series is None else pick(self.key_series),
            value_series=None if self.value_series is None else pick(self.value_series),
        )


@dataclass(frozen=True)
class Rows:
    """Some of the query times of every sequence.

    Shapes: time [B, R]; query [B, H, R, dk], the query path there; known [B, R], the last time up to which the path
    may be read (its own time, but in a causal model the last observation's); block: which block of points they lie in;
    left [B, R]: the point before them, counted from the block's start.
    """

    time: Float[Tensor, "batch rows"]
    query: Float[Tensor, "batch heads rows dk"]
    known: Float[Tensor, "batch rows"]
    block: int = 0
    left: Int[Tensor, "batch rows"] | None = None

"""Integrals ``∫ q·k_i`` between keys and query times, summed outward from the key over the cells between points.

With ``k_i = Σ_m c_{i,m} T_m`` the integral over a cell between two neighbouring points is ``c_i · μ_cell``, a product
of the coefficients with the moments of the query path. Cells are never summed as a difference of two prefix sums, so
close times lose nothing:

- points are cut into blocks of consecutive points. Between a key and a query of one block, the cells' contributions are
  summed by a triangular product;
- between blocks the integral is the key's carry up to the near edge of the query's block, plus ``c_i`` times the
  moments from that edge to the query, which is one product for all keys on that side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contiformer.native import made_for
from contiformer.native.gap_softmax import outward_sums
from contiformer.nn.attention_inputs import Keys, Rows
from contiformer.nn.moments import held_moments, interval_moments
from contiformer.paths.interpolation import PiecewisePolynomial

#: So many points are one block; longer sequences are cut into blocks of about the second number, which is where the
#: triangular sums within blocks and the carries between them cost the same.
ALONE = 256
BLOCK = 128


@dataclass(frozen=True)
class CellSums:
    """Everything about ``∫ q·k_i`` that does not depend on the query time.

    Shapes, with nb blocks of b points: within [B, H, nb, b, b + 1], the integral between key i and point m of the same
    block; before, after [B, H, nb, b (after: b + 1 between knots), P M dk], the moments from the block's left edge to
    each point and from each point to its right edge, with no columns where there is one block; left, right
    [B, H, L, nb], the carry of key i to the left and right edge of another block.
    """

    size: int
    time: Float[Tensor, "batch points"]
    piece: Int[Tensor, "batch points"]
    series: Float[Tensor, "batch heads points pmd"]
    width: int
    within: Float[Tensor, "batch heads blocks b b+1"]
    before: Float[Tensor, "batch heads blocks b columns"]
    after: Float[Tensor, "batch heads blocks ends columns"]
    left: Float[Tensor, "batch heads points blocks"] | None
    right: Float[Tensor, "batch heads points blocks"] | None
    path: PiecewisePolynomial

    @classmethod
    def at_knots(cls, path: PiecewisePolynomial, keys: Keys) -> CellSums:
        """Cells between the knots themselves, in one piece."""
        return cls._build(path, keys, None, torch.zeros_like(keys.time, dtype=torch.long))

    @classmethod
    def between_points(cls, path: PiecewisePolynomial, keys: Keys) -> CellSums:
        """Cells between arbitrary points that include all knots and all edges of pieces."""
        following = torch.cat([keys.time[:, 1:], keys.time[:, -1:]], dim=1)
        middle = (keys.time + following) / 2
        cell, _ = path.locate(middle)
        return cls._build(path, keys, cell, keys.pieces.locate(middle))

    @classmethod
    def _build(cls, path: PiecewisePolynomial, keys: Keys, cell: Tensor | None, piece: Tensor) -> CellSums:
        series = keys.key_series
        assert series is not None
        _, heads, length, _, terms, dk = series.shape
        following = torch.cat([keys.time[:, 1:], keys.time[:, -1:]], dim=1)
        moments = interval_moments(path, keys.pieces, terms, keys.time, following, cell, piece, heads).flatten(3)
        flat = series.flatten(3)
        blocks = 1 if length <= ALONE else -(-length // BLOCK)
        size = -(-length // blocks)

        def blocked(x: Tensor) -> Tensor:
            return padded(x, blocks * size).unflatten(2, (blocks, size))

        coefficients, moments = blocked(flat), blocked(moments)
        each = coefficients @ moments.mT
        reached = torch.ones(size, size + 1, device=flat.device, dtype=flat.dtype).triu(1)
        within = _outward_sums(each, reached)
        left = right = None
        # the moments from the block's left edge to each point, and from each point to its right edge; where there is
        # one block, no key is beyond an edge and nobody asks for them
        asked = moments if blocks > 1 else moments.new_empty(*moments.shape[:-1], 0)
        # nobody asks from the right edge itself where the points are the knots
        before, after = reached.T[:size] @ asked, (1 - reached).T[: size if cell is None else size + 1] @ asked
        if blocks > 1:
            crossed = flat @ after[:, :, :, 0].mT
            crossed = blocked(crossed).transpose(3, 4)
            later = torch.ones(blocks, blocks, device=flat.device, dtype=flat.dtype).triu(1)
            # left[I, J] = to the end of the own block + blocks strictly between I and J; right is its mirror image
            onward = (later.unsqueeze(-1) * crossed).mT @ later
            backward = (later.T.unsqueeze(-1) * crossed).mT @ later.T
            left = (within[..., -1:] + onward).flatten(2, 3)[:, :, :length]
            right = (within[..., :1] + backward).flatten(2, 3)[:, :, :length]
        return cls(size, keys.time, piece, flat, terms * dk, within, before, after, left, right, path)

    def integrals(self, rows: Rows, keys: Keys) -> Float[Tensor, "batch heads rows keys"]:
        """``∫ q·k_i`` between each key and each row, whatever side the key is on: never negative lengths."""
        block, size = rows.block, self.size
        length = self.series.shape[2]
        start, stop = block * size, min((block + 1) * size, length)
        within = self.within[:, :, block, : stop - start]
        if rows.left is None:
            count = rows.time.shape[1]
            near = within[..., :count].mT
            before, after = self.before[:, :, block, :count], self.after[:, :, block, :count]
            used = slice(0, self.series.shape[-1])
        else:
            before, after, near, used = self._between(rows, keys, within, start, stop)
        parts = [near]
        if start > 0:
            assert self.left is not None
            parts.insert(0, _carried(self.left[:, :, :start, block], before, self.series[:, :, :start, used]))
        if stop < length:
            assert self.right is not None
            parts.append(_carried(self.right[:, :, stop:, block], after, self.series[:, :, stop:, used]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)

    def _between(
        self, rows: Rows, keys: Keys, within: Tensor, start: int, stop: int
    ) -> tuple[Tensor, Tensor, Tensor, slice]:
        """The same for rows between points: the partial cells to the left and right of the row come on top."""
        heads = self.series.shape[1]
        assert rows.left is not None
        left = rows.left
        point = self.time.gather(1, left + start)
        after_point = self.time.gather(1, (left + start + 1).clamp(max=self.time.shape[1] - 1))
        terms = self.width // keys.key.shape[-1]
        if rows.known is rows.time:
            piece = self.piece.gather(1, left + start)
            cell, _ = self.path.locate((point + after_point) / 2)
            to_left = interval_moments(self.path, keys.pieces, terms, point, rows.time, cell, piece, heads)
            to_right = interval_moments(self.path, keys.pieces, terms, rows.time, after_point, cell, piece, heads)
        else:
            # beyond the last observation a causal model holds the query: the next one is not known yet
            held = rows.query.transpose(1, 2).flatten(2)
            to_left = held_moments(held, keys.pieces, terms, rows.known, rows.time, heads)
            to_right = torch.zeros_like(to_left)
        used = self._pieces_used(rows, keys, start, stop)

        def pick(x: Tensor, index: Tensor) -> Tensor:
            return x.gather(2, index[:, None, :, None].expand(-1, heads, -1, x.shape[-1]))

        to_left, to_right = to_left.flatten(3)[..., used], to_right.flatten(3)[..., used]
        series = self.series[:, :, start:stop, used]
        columns = within.mT
        key_index = torch.arange(stop - start, device=left.device)
        near = torch.where(
            (key_index <= left[..., None]).unsqueeze(1),
            pick(columns, left) + to_left @ series.mT,
            pick(columns, left + 1) + to_right @ series.mT,
        )
        before, after = to_left, to_right
        if start > 0:
            before = before + pick(self.before[:, :, rows.block, :, used], left)
        if stop < self.series.shape[2]:
            after = after + pick(self.after[:, :, rows.block, :, used], left + 1)
        return before, after, near, used

    def _pieces_used(self, rows: Rows, keys: Keys, start: int, stop: int) -> slice:
        """The coefficients of the pieces that the rows' block touches: the moments are zero in all others."""
        count = keys.pieces.count
        if count == 1:
            return slice(0, self.series.shape[-1])
        low = int(self.piece[:, start:stop].min())
        high = max(int(self.piece[:, start:stop].max()), int(keys.pieces.locate(rows.time).max()))
        return slice(low * self.width, (high + 1) * self.width)


def padded(x: Tensor, length: int) -> Float[Tensor, "batch heads length n"]:
    """Zeros after the rows of x [B, H, L, n] up to ``length``; ``pad`` would copy where there is nothing to add."""
    missing = length - x.shape[2]
    return x if missing == 0 else pad(x, (0, 0, 0, missing))


def _outward_sums(each: Tensor, reached: Tensor) -> Float[Tensor, "batch heads blocks b c"]:
    """``sums[i, m] = Σ each[i, n]`` over the cells n between the points i and m: outwards from i."""
    if made_for(each):
        return outward_sums(each)
    return each.triu() @ reached + each.tril(-1) @ (1 - reached)


def _carried(carry: Tensor, moments: Tensor, series: Tensor) -> Tensor:
    """``carry_i + moments_j · series_i`` [B, H, R, keys] in one pass."""
    batch, heads = moments.shape[:2]
    return torch.baddbmm(carry.flatten(0, 1).unsqueeze(1), moments.flatten(0, 1), series.flatten(0, 1).mT).unflatten(
        0, (batch, heads)
    )

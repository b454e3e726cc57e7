"""One irregular series."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.conversion import as_matrix, as_times, plain, same, sort_order, taken
from contiformer.data.errors import DataError

Label = bool | str | int | float


@dataclass(frozen=True, eq=False)
class Series:
    """Values at irregular times, some of them missing.

    Attributes:
        times: [L] float64, never decreasing; seconds since 1970 (UTC) where dates were given. Equal times may occur.
        values: [L, C] float32 or float64, NaN where a channel was not observed.
        static: [S] features that do not change in time, NaN where unknown.
        label: a class (a word or a number) or a number to predict, one for the series.
        target_times, target_values: [M] and [M, K], a series to predict, where there is one.
        id: a name; readers put the one from the data here.
        weight: how much the series counts in a loss; None: 1.

    Use :meth:`of` to make one: it converts, checks, and sorts by time.

    Example:
        >>> from contiformer.data import Series
        >>> series = Series.of([3.0, 1.0], [[30.0, float("nan")], [10.0, 1.0]], id="a")
        >>> series.times.tolist(), series.values[0].tolist()
        ([1.0, 3.0], [10.0, 1.0])
    """

    times: Float64[np.ndarray, " points"]
    values: NDArray[np.floating[Any]]
    static: NDArray[np.floating[Any]] | None = None
    label: Label | None = None
    target_times: Float64[np.ndarray, " targets"] | None = None
    target_values: NDArray[np.floating[Any]] | None = None
    id: str | int | None = None
    weight: float | None = None

    @classmethod
    def of(
        cls,
        times: ArrayLike,
        values: ArrayLike,
        *,
        static: ArrayLike | None = None,
        label: Label | None = None,
        target_times: ArrayLike | None = None,
        target_values: ArrayLike | None = None,
        id: str | int | None = None,
    ) -> Series:
        """Convert, check, and sort by time.

        ``times`` are real numbers, datetimes or dates, in any order, and ``target_times`` by default the same. Values
        of one channel may be [L]; NaN or None: not observed.
        """
        name = "" if id is None else f" of series {id!r}"
        stamps, array = as_times(times, f"times{name}"), as_matrix(values, f"values{name}")
        if len(stamps) != len(array):
            problem = f"{len(stamps)} times but {len(array)} rows of values{name}"
            raise DataError(problem, remedy="give one row per time")
        order = sort_order(stamps)
        targets: tuple[NDArray[Any] | None, NDArray[Any] | None] = (None, None)
        if target_values is not None:
            wanted = as_matrix(target_values, f"target_values{name}")
            at = stamps if target_times is None else as_times(target_times, f"target_times{name}")
            if len(at) != len(wanted):
                problem = f"{len(at)} target times but {len(wanted)} rows of target values{name}"
                raise DataError(problem, remedy="pass target_times with one time per row of target_values")
            by_time = sort_order(at)
            targets = (taken(at, by_time), taken(wanted, by_time))
        elif target_times is not None:
            raise DataError(f"target_times without target_values{name}", remedy="give both or none")
        fixed = None if static is None else as_matrix(static, f"static{name}")
        if fixed is not None and fixed.shape[1] != 1:
            raise DataError(f"static{name} is no flat list", remedy="pass one number for each feature")
        flat = None if fixed is None else fixed[:, 0]
        return cls(taken(stamps, order), taken(array, order), flat, plain(label), *targets, plain(id))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def channels(self) -> int:
        """The number of channels."""
        return int(self.values.shape[1])

    @property
    def observed(self) -> NDArray[np.bool_]:
        """[L, C], True where a value was observed."""
        return ~np.isnan(self.values)

    @property
    def span(self) -> float:
        """Time from the first to the last point; 0 for fewer than two."""
        return float(self.times[-1] - self.times[0]) if len(self) else 0.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        mine, theirs = vars(self), vars(other)
        return all(same(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def points(self, which: Int64[np.ndarray, " kept"] | NDArray[np.bool_] | slice) -> Series:
        """The points at the given positions, everything else as it is."""
        return replace(self, times=self.times[which], values=self.values[which])

    def between(self, start: float, end: float) -> Series:
        """The points with ``start <= time < end``, also of the target."""
        keep = (self.times >= start) & (self.times < end)
        part = self.points(keep)
        if self.target_times is None or self.target_values is None:
            return part
        wanted = (self.target_times >= start) & (self.target_times < end)
        return replace(part, target_times=self.target_times[wanted], target_values=self.target_values[wanted])

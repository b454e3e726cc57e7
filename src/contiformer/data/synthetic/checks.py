"""Argument checks and random generators shared by all generators of data."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contiformer.data.errors import DataError


def seeded(*seeds: int) -> np.random.Generator:
    """A generator of random numbers that depends on all of the seeds: whole numbers from 0."""
    if not all(isinstance(seed, int | np.integer) and seed >= 0 for seed in seeds):
        raise DataError(f"a seed in {seeds} is not a whole number from 0", remedy="pass an int, 0 or more")
    return np.random.default_rng([int(seed) for seed in seeds])


def numbers(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """The value as an array of float64 of its own, all finite."""
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.isfinite(array).all():
        raise DataError(f"{name} does not consist of finite numbers", remedy="pass an array of numbers in equal rows")
    return array


def check_count(n: int, what: str = "sequences") -> None:
    """Refuse negative sizes of sets."""
    if n < 0:
        raise DataError(f"{n} {what} cannot be made", remedy="pass 0 or more")


def check_end(end: float, most: float = 1e9) -> None:
    """Refuse windows that end before they begin, or never."""
    if not 0 < end <= most:
        raise DataError(f"a process cannot be simulated from 0 to {end}", remedy=f"pass an end from 0 to {most:g}")

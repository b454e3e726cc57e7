"""Checks that the tests of all generators share."""

from __future__ import annotations

import hashlib

import numpy as np

from contiformer.data import EventSequence, Series


def checksum(data) -> str:
    """Of all numbers to six decimals, so that the last bits of a platform's sine do not matter."""
    digest = hashlib.sha256()
    for item in data:
        assert isinstance(item, Series | EventSequence)
        for name, array in sorted(vars(item).items()):
            if isinstance(array, np.ndarray):
                # adding 0 turns -0 into 0; NaN has many bit patterns
                rounded = np.nan_to_num(np.round(array.astype("<f8"), 6) + 0.0, nan=1e300)
                digest.update(name.encode() + repr(array.shape).encode() + rounded.tobytes())
            elif name != "weight":
                digest.update(f"{name}={array!r}".encode())
    return digest.hexdigest()[:16]


def kolmogorov_smirnov(residuals) -> float:
    """``sqrt(n) sup |F_n - F|`` against Exp(1); above 1.63 in one of a hundred samples."""
    values = 1 - np.exp(-np.sort(residuals))
    n = len(values)
    steps = np.arange(n + 1) / n
    return float(np.sqrt(n) * max((steps[1:] - values).max(), (values - steps[:-1]).max()))

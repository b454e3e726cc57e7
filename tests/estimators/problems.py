"""Toy series and tiny estimator options for fast tests."""

import numpy as np

TINY = {
    "d_model": 8,
    "backbone_options": {"n_heads": 2},
    "max_epochs": 2,
    "window": 2,
    "verbose": 0,
}
TINY_EVENTS = {"d_model": 8, "n_layers": 1, "max_epochs": 2, "verbose": 0}


def waves(n=12, channels=2, seed=0, missing=0.2):
    """Series [(times, values)] of 4 to 9 points, and their classes "a" and "b"."""
    draw = np.random.default_rng(seed)
    X = []
    for i in range(n):
        times = np.sort(draw.uniform(0, 10, draw.integers(4, 10)))
        values = np.sin(times[:, None] + 2 * (i % 2)) + 0.1 * draw.normal(size=(len(times), channels))
        values[1:][draw.random((len(times) - 1, channels)) < missing] = np.nan
        X.append((times, values))
    return X, ["ab"[i % 2] for i in range(n)]


def numbers(X):
    """Something to regress on."""
    return [float(np.nanmean(values)) for _, values in X]


def long_table(X, labels=None, ids=None):
    """Columns of one row for each point."""
    ids = [f"p{n}" for n in range(len(X))] if ids is None else ids
    table = {
        "who": [ids[n] for n, (times, _) in enumerate(X) for _ in times],
        "hour": [float(t) for times, _ in X for t in times],
    }
    for c, name in enumerate(("pH", "pulse")):
        table[name] = [float(row[c]) for _, values in X for row in values]
    if labels is not None:
        table["kind"] = [labels[n] for n, (times, _) in enumerate(X) for _ in times]
    return table

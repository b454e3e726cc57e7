"""Small tables, as records."""

import numpy as np


def waves(series=16, points=8, seed=0):
    """Series of one channel that begin upwards or downwards, and a number that goes with them."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(series):
        sign = 1 if n % 2 else -1
        for t in np.sort(draw.uniform(0, 10, points)).round(3).tolist():
            x = sign * float(np.sin(t))
            rows.append(
                {
                    "who": f"p{n}",
                    "t": t,
                    "x": x,
                    "<script>": 2 * x if draw.uniform() < 0.8 else None,
                    "kind": "up" if n % 2 else "down",
                    "size": float(n),
                    "later": x * x,
                }
            )
    return rows


def days(series=2, points=40, seed=0):
    """Regular series with dates."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(series):
        for k in range(points):
            date = np.datetime64("2024-01-01T00:00:00") + np.timedelta64(k, "h")
            rows.append({"meter": n + 1, "date": str(date), "load": float(np.sin(k / 4) + 0.1 * draw.normal())})
    return rows


def orders(sequences=12, events=10, seed=0):
    """Events of two types."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(sequences):
        for time in np.cumsum(draw.exponential(1.0, events)).round(4).tolist():
            rows.append({"user": f"u{n}", "hour": time, "action": "buy" if draw.uniform() < 0.5 else "sell"})
    return rows


def without(rows, *names):
    """The records without some columns."""
    return [{name: x for name, x in row.items() if name not in names} for row in rows]


def of(rows, **wanted):
    """The records with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

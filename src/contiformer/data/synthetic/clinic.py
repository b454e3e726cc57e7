"""A generated intensive care unit: vital signs and laboratory values at irregular times, and mortality.

Every patient has a severity that drifts over the stay. A variable wanders around its mean (an Ornstein-Uhlenbeck
process), shifted by the severity; how often it is measured depends on the variable and, as in real records, on the
severity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from contiformer.data.synthetic.checks import check_count, seeded


class _Variable(NamedTuple):
    """Mean and spread in the unit, shift by one unit of severity (in spreads), and measurements per hour."""

    mean: float
    spread: float
    shift: float
    rate: float


_VARIABLES = {
    "heart rate": _Variable(85, 14, 0.9, 1.0),
    "systolic pressure": _Variable(121, 18, -0.8, 0.8),
    "temperature": _Variable(37.0, 0.7, 0.1, 0.3),
    "oxygen saturation": _Variable(96, 2, -0.7, 0.5),
    "lactate": _Variable(2.0, 0.9, 1.3, 0.08),
    "creatinine": _Variable(1.2, 0.5, 0.9, 0.05),
    "glucose": _Variable(139, 38, 0.2, 0.1),
}


def clinic_frames(n: int = 500, *, hours: float = 48.0, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The measurements of ``n`` patients, a row each, and a table of patients.

    Returns:
        Measurements with the columns patient, hour, variable and value; patients with patient, age and died.

    Example:
        >>> from contiformer.data.synthetic import clinic_frames
        >>> measurements, patients = clinic_frames(20)
        >>> measurements.columns, patients.columns
        (['patient', 'hour', 'variable', 'value'], ['patient', 'age', 'died'])
        >>> measurements["variable"].n_unique()
        7
    """
    check_count(n, "patients")
    rng = seeded(seed, 0)
    age = rng.normal(64, 14, n).clip(18, 95).round()
    severity = rng.standard_normal(n) + (age - 64) / 30
    drift = rng.normal(0, 1, n)
    died = rng.random(n) < 1 / (1 + np.exp(2.5 - 2 * severity - 2 * drift))
    rows: dict[str, list[np.ndarray]] = {"patient": [], "hour": [], "variable": [], "value": []}
    for name, variable in _VARIABLES.items():
        counts = rng.poisson(hours * variable.rate * np.exp(0.3 * severity))
        patient = np.repeat(np.arange(n), counts)
        hour = rng.uniform(0, hours, counts.sum())
        order = np.lexsort((hour, patient))
        hour = hour[order].round(2)
        ill = severity[patient] + drift[patient] * hour / hours
        wander = _ornstein_uhlenbeck(hour, np.r_[True, patient[1:] != patient[:-1]], rng)
        value = variable.mean + variable.spread * (variable.shift * ill + wander)
        for column, part in zip(rows, (patient, hour, np.full(len(hour), name), value.round(2)), strict=True):
            rows[column].append(part)
    frame = pl.DataFrame({column: np.concatenate(parts) for column, parts in rows.items()})
    # two values of a variable in one hundredth of an hour would be duplicates
    frame = frame.unique(["patient", "hour", "variable"], keep="first").sort("patient", "hour", "variable")
    return frame, pl.DataFrame({"patient": np.arange(n), "age": age, "died": died})


def _ornstein_uhlenbeck(times: np.ndarray, begins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Standard deviation 1, and correlations that fall to 1/e in 6 hours; a new one where a series begins."""
    noise = rng.standard_normal(len(times))
    kept = np.where(begins, 0.0, np.exp(-np.diff(times, prepend=0.0).clip(0) / 6))
    state = np.empty(len(times))
    last = 0.0
    for i, (share, fresh) in enumerate(zip(kept, noise, strict=True)):
        state[i] = last = share * last + np.sqrt(1 - share**2) * fresh
    return state

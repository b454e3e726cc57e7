"""Forecast the next day of one long series of dates, with gaps, beside last week's values."""

import numpy as np
import pandas as pd

from contiformer import Forecaster, TrainingOptions

rng = np.random.default_rng(0)
stamp = pd.date_range("2026-01-01", periods=24 * 42, freq="h", tz="UTC")
load = 50 + 20 * np.sin(2 * np.pi * stamp.hour / 24) + rng.normal(0, 2, len(stamp))
df = pd.DataFrame({"stamp": stamp, "load": load})[rng.random(len(stamp)) > 0.1]

past = df[df["stamp"] < stamp[-24]]
model = Forecaster(horizon=24, training=TrainingOptions(max_epochs=3, verbose=0)).fit(past, time="stamp")
print(model.predict(past, quantiles=[0.1, 0.5, 0.9]).head())

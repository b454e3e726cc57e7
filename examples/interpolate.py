"""Values of every channel at any time, with standard deviations."""

import numpy as np

from contiformer import Interpolator, TrainingOptions

rng = np.random.default_rng(0)


def curve(times: np.ndarray, phase: float) -> np.ndarray:
    """Two channels of one motion, each observed at about half of the times."""
    values = np.stack([np.sin(3 * times + phase), np.cos(3 * times + phase)], axis=1)
    return np.where(rng.random(values.shape) < 0.5, values, np.nan)


series = []
for _ in range(100):
    times = np.sort(rng.uniform(0, 4, rng.integers(15, 40)))
    series.append((times, curve(times, rng.uniform(0, 6))))

model = Interpolator(d_model=32, training=TrainingOptions(max_epochs=15, verbose=0)).fit(series[:80])
mean, std = model.predict(series[80:], at=[0.5, 1.25, 3.9], return_std=True)
print(mean[0].round(2), std[0].round(2), sep="\n")

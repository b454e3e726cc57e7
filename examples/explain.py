"""Attributions of a prediction to observations, by occlusion, as a table."""

import polars as pl

from contiformer import Classifier, TrainingOptions
from contiformer.data.synthetic import clinic_frames

measurements, patients = clinic_frames(100, seed=0)
columns = {"id": "patient", "time": "hour", "variable": "variable", "value": "value"}
model = Classifier(d_model=16, training=TrainingOptions(max_epochs=8, verbose=0))
model.fit(measurements, patients.select("patient", "died"), **columns)

one = measurements.filter(pl.col("patient") == 3)
reasons = model.explain(one, target=True, most_parts=64)
print(reasons.channels())
print(reasons.table().sort("rank").head())

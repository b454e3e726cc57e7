"""Classify patients from a table with one row per measurement, and look at why."""

import polars as pl

from contiformer import Classifier, TrainingOptions
from contiformer.data.synthetic import clinic_frames

measurements, patients = clinic_frames(200, seed=0)
test = pl.col("patient") >= 150
columns = {"id": "patient", "time": "hour", "variable": "variable", "value": "value"}

model = Classifier(d_model=32, training=TrainingOptions(max_epochs=15, verbose=0))
model.fit(measurements.filter(~test), patients.filter(~test).select("patient", "died"), **columns)

print(model.predict_proba(measurements.filter(test)).head())
print(model.evaluate(measurements.filter(test), patients.filter(test).select("patient", "died")))

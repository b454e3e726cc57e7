"""Learn a point process from a table of events, and follow a new customer event by event."""

import polars as pl

from contiformer import EventPredictor, TrainingOptions
from contiformer.data.synthetic import hawkes_set

names = ["browse", "buy"]
rows = [
    (customer, time, names[kind])
    for customer, one in enumerate(hawkes_set(80, end=30.0))
    for time, kind in zip(one.times, one.types, strict=True)
]
df = pl.DataFrame(rows, schema=["customer", "hour", "action"], orient="row")

model = EventPredictor(d_model=16, training=TrainingOptions(max_epochs=5, verbose=0))
model.fit(df, id="customer", time="hour", type="action")
print(model.predict_next(df, within=2.0).head(3))

stream = model.stream()
for hour, action in [(0.0, "browse"), (0.7, "browse"), (1.1, "buy")]:
    stream.append(hour, action)
print(stream.predict_next(within=2.0))

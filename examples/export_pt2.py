"""Export a trained classifier as one graph, and run the file with PyTorch alone.

A path that ends in .onnx writes ONNX instead: pip install 'contiformer[export]'.
"""

import json

import numpy as np
import torch

from contiformer import Classifier, TrainingOptions

rng = np.random.default_rng(0)
labels = ["slow", "fast"] * 20
series = []
for label in labels:
    times = np.sort(rng.uniform(0, 3, rng.integers(8, 16)))
    series.append((times, np.sin((2 if label == "slow" else 6) * times + rng.uniform(0, 6))[:, None]))

model = Classifier(d_model=16, training=TrainingOptions(max_epochs=5, verbose=0)).fit(series, labels)
written = model.export("model.pt2", series[:4])
print("largest difference from the model:", written.difference)

extra = {"contiformer.json": ""}
graph = torch.export.load("model.pt2", extra_files=extra).module()
print("classes:", json.loads(extra["contiformer.json"])["classes"])
times, values = (torch.as_tensor(part, dtype=torch.float64)[None] for part in series[0])
print("from the file:", graph(times=times, values=values, lengths=torch.tensor([times.shape[1]])))
print("from the model:", model.predict_proba(series[:1]))

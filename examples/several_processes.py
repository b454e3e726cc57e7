"""Train on two processes of one machine: ``torchrun --nproc-per-node 2 several_processes.py``."""

import os

from contiformer import Classifier, TrainingOptions
from contiformer.data.synthetic import clinic_frames

if __name__ == "__main__":
    measurements, patients = clinic_frames(80, seed=0)
    columns = {"id": "patient", "time": "hour", "variable": "variable", "value": "value"}
    training = TrainingOptions(max_epochs=3, batch_size=32, seed=0, verbose=0)
    model = Classifier(d_model=16, run_dir="run", training=training)
    model.fit(measurements, patients.select("patient", "died"), **columns)
    if os.environ.get("RANK", "0") == "0":
        print("validation loss by epoch:", [round(row["loss"], 3) for row in model.history_])

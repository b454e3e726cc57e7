"""Serve a model over HTTP, ask it for probabilities, and stop the server.

Needs the extra: pip install 'contiformer[serve]'. `contiformer serve RUN` starts the same server from the command line.
"""

import json
import re
import subprocess
import sys
from urllib.request import Request, urlopen

from contiformer import Classifier, TrainingOptions
from contiformer.data.synthetic import clinic_frames

measurements, patients = clinic_frames(60, seed=0)
columns = {"id": "patient", "time": "hour", "variable": "variable", "value": "value"}
model = Classifier(d_model=16, training=TrainingOptions(max_epochs=2, verbose=0))
model.fit(measurements, patients.select("patient", "died"), **columns).save("mortality")

command = [sys.executable, "-m", "contiformer.cli.main", "serve", "mortality", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
    try:
        address = next(found[0] for line in server.stdout or () if (found := re.search(r"http://[\w.]+:\d+", line)))
        records = measurements.filter(measurements["patient"] == 3).to_dicts()
        body = json.dumps({"records": records}).encode()
        request = Request(f"{address}/predict", body, {"Content-Type": "application/json"})
        with urlopen(request) as answer:
            print(json.load(answer))
    finally:
        server.terminate()

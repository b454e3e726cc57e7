"""A set that does not fit into the memory a process may have is trained on all the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")

FILES, SERIES, POINTS, CHANNELS = 8, 500, 1000, 6
#: What reading whole would need; the process may have half of it on top of what the libraries take.
BYTES = FILES * SERIES * POINTS * (CHANNELS + 2) * 8

PROGRAM = """
import resource, sys
import torch
import polars as pl
from contiformer import ContiFormer
from contiformer.data import Loader, read_parquet, scan_parquet

torch.set_num_threads(1)
folder, small, mode, allowed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
options = dict(id="who", time="t")

def epoch(path):
    data = scan_parquet(path, **options)
    model = ContiFormer(6, d_model=8, n_heads=2, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    # every series is read whole; a few points of each are enough to train on
    short = data.map(lambda series: series.points(slice(0, 6)))
    seen = 0
    for batch in Loader(short):
        loss = model(batch.values, batch.times, batch.observed).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch)
    assert seen == len(data), (seen, len(data))
    return seen

epoch(small)  # libraries and their threads take what they need before the limit is set
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, used + allowed))
print(epoch(folder) if mode == "scan" else len(read_parquet(folder, **options)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    (root / "small").mkdir()
    (root / "large").mkdir()
    rng = np.random.default_rng(0)
    times = np.tile(np.arange(POINTS) / 7, SERIES)
    values = {f"x{n}": np.tile(rng.normal(size=POINTS), SERIES) for n in range(CHANNELS)}
    for number in range(FILES):
        table = pl.DataFrame({"who": np.repeat(np.arange(SERIES) + number * SERIES, POINTS), "t": times, **values})
        table.write_parquet(root / "large" / f"{number}.parquet", row_group_size=50_000)
    pl.read_parquet(root / "large" / "0.parquet").head(3 * POINTS).write_parquet(root / "small" / "0.parquet")
    return root


def run(folder, mode):
    arguments = [str(folder / "large"), str(folder / "small"), mode, str(BYTES // 2)]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )


def test_an_epoch_fits_into_half_the_memory_of_the_set(folder):
    done = run(folder, "scan")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(FILES * SERIES)]


def test_reading_whole_does_not(folder):
    assert run(folder, "read").returncode != 0

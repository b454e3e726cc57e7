"""The cost of data: parsing archives and clinical records, and putting batches together."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from contiformer.benchmarks.data_reading import bench_ts
from contiformer.benchmarks.machine import machine_facts
from contiformer.benchmarks.timing import interleave
from contiformer.data.batch import collate
from contiformer.data.catalog.clinical import load_clinical
from contiformer.data.catalog.store import find
from contiformer.data.errors import DataError
from contiformer.data.series import Series

_RECORDS = "clinical/physionet2012/set-a.csv.gz"
_BATCH, _LENGTH = 64, 200


def run() -> dict[str, Any]:
    """All measurements; what needs data or packages that are absent says so instead."""
    return {
        "machine": machine_facts(),
        "ts": _or_why_not(bench_ts),
        "physionet": _or_why_not(physionet),
        "collate": [batches(channels) for channels in (1, 6, 37)],
    }


def physionet() -> dict[str, Any]:
    """PhysioNet 2012 set A from CSV to series, beside polars reading the same file into a table."""
    path = find(_RECORDS)
    if path is None:
        raise DataError(f"{_RECORDS} is not here", remedy="set CONTIFORMER_DATA")
    contenders = {"ours": lambda: load_clinical("PhysioNet2012-A"), "polars": lambda: pl.read_csv(path)}
    timings = interleave(contenders, budget=20.0, warm_up=1)
    names = ("ours", "polars")
    return {f"{name}_ms": timings.milliseconds(name) for name in names} | {"ratio": timings.ratio(*names)}


def batches(channels: int) -> dict[str, Any]:
    """64 series of 200 points, a third of the values missing, into a batch."""
    rng = np.random.default_rng(0)
    series = []
    for _ in range(_BATCH):
        values = rng.normal(size=(_LENGTH, channels)).astype(np.float32)
        values[rng.uniform(size=values.shape) < 1 / 3] = np.nan
        series.append(Series.of(np.sort(rng.uniform(size=_LENGTH)), values))
    timings = interleave({"collate": lambda: collate(series)}, budget=1.0, at_most=200)
    return {"batch": _BATCH, "length": _LENGTH, "channels": channels, "ms": timings.milliseconds("collate")}


def _or_why_not(measure: Any) -> Any:
    try:
        return measure()
    except (DataError, ModuleNotFoundError) as error:
        return {"not measured": str(error)}


def rows(document: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What, our time, the others' time and the ratio, as text."""
    ts, records = document["ts"], document["physionet"]
    lines = []
    if isinstance(ts, dict):
        lines.append(("UEA archive", ts["not measured"], "", ""))
    else:
        lines += [
            (r["file"], f"{r['ours_ms']:.1f} ms", f"aeon {r['aeon_ms']:.1f} ms", f"{r['ratio']:.2f}x") for r in ts
        ]
    if "not measured" in records:
        lines.append(("PhysioNet set A", records["not measured"], "", ""))
    else:
        polars = f"polars.read_csv {records['polars_ms']:.0f} ms"
        lines.append(("PhysioNet set A", f"{records['ours_ms']:.0f} ms", polars, f"{records['ratio']:.2f}x"))
    lines += [
        (f"batch of {r['batch']} x {r['length']}, {r['channels']} channels", f"{r['ms']:.2f} ms", "", "")
        for r in document["collate"]
    ]
    return lines

"""The cost of data: parsing archives and clinical records beside other libraries, and collating batches."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.machine import machine_facts
from benchmarks.timing import Timings, interleave
from contiformer.data import DataError, Series, collate, read_bytes, read_ts
from contiformer.data.catalog import find_file, load_clinical

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
    path = find_file(_RECORDS)
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
    """Measurement, our time, the others' time and the ratio, as text."""
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


def bench_ts(
    folder: str | Path | None = None,
    names: Sequence[str] = ("PenDigits", "SpokenArabicDigits"),
    *,
    budget: float = 20.0,
    at_least: int = 5,
) -> list[dict[str, Any]]:
    """Read the train part of sets of the UEA archive with :func:`read_ts` and with aeon's loader.

    Each set gives two rows. In the row of the plain ``.ts`` both read the same unpacked file. In that of the ``.ts.gz``
    aeon, which cannot read it, is given the unpacked file all the same, and what it takes is the time to unpack it in
    memory plus that to load it.

    Args:
        folder: with ``<name>/<name>_TRAIN.ts.gz`` in it; if None ``uea`` in CONTIFORMER_DATA.
        names: the sets.
        budget: seconds for each set.
        at_least: repeats, whatever the budget.

    Returns:
        Rows ``{file, ours_ms, aeon_ms, ratio}``: medians over the repeats, and the median of ours / aeon within each
        repeat; below 1 we are faster.

    Raises:
        ModuleNotFoundError: without aeon, with the command that installs it.
        DataError: where a file is missing.
    """
    load = _aeon_loader()
    where = Path(folder if folder is not None else Path(os.environ.get("CONTIFORMER_DATA", "../shared/data")) / "uea")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            packed, plain = where / name / f"{name}_TRAIN.ts.gz", Path(scratch) / f"{name}_TRAIN.ts"
            if not packed.is_file():
                raise DataError("there is no such file", file=packed, remedy="pass the folder of the UEA archive")
            with gzip.open(packed) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
            contenders: dict[str, Callable[[], object]] = {
                f"ours {packed.name}": partial(read_ts, packed),
                f"aeon {packed.name}": _after_unpacking(packed, plain, load),
                f"ours {plain.name}": partial(read_ts, plain),
                f"aeon {plain.name}": partial(load, str(plain)),
            }
            # all in turn, so that the rows can be compared with one another too
            timings = interleave(contenders, budget=budget, at_least=at_least, warm_up=1)
            rows += [_row(packed.name, timings), _row(plain.name, timings)]
    return rows


def _row(file: str, timings: Timings) -> dict[str, Any]:
    ours, aeon = f"ours {file}", f"aeon {file}"
    return {
        "file": file,
        "ours_ms": timings.milliseconds(ours),
        "aeon_ms": timings.milliseconds(aeon),
        "ratio": timings.ratio(ours, aeon),
    }


def _after_unpacking(packed: Path, plain: Path, load: Callable[[str], object]) -> Callable[[], object]:
    def unpack_and_load() -> object:
        read_bytes(packed)
        return load(str(plain))

    return unpack_and_load


def _aeon_loader() -> Callable[[str], object]:
    try:
        loader: Callable[[str], object] = import_module("aeon.datasets").load_from_ts_file
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the comparison needs aeon ({error}): pip install 'contiformer[bench]'", name=error.name
        ) from None
    return loader

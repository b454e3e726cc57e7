"""How long it takes to read data, against other libraries, on the same files in the same run."""

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

from contiformer.benchmarks.timing import Timings, interleave
from contiformer.data.errors import DataError
from contiformer.data.readers.text import read_bytes
from contiformer.data.readers.ts import read_ts


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

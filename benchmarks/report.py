"""Results of the attention benchmark as tables and files, and its progress bar."""

from __future__ import annotations

import csv
import json
from dataclasses import astuple, fields
from pathlib import Path
from types import TracebackType

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from benchmarks.attention import Plan, Results, Row, Speed
from benchmarks.contenders import Contender
from benchmarks.growth import GrowthPoint, draw_growth

NAMES: dict[Contender, str] = {"ours": "ours", "layer": "torch layer", "pairwise": "pairwise"}
NOTHING = "-"
SPEED_COLUMNS = (
    *("training\nms", "layer\nms", "ratio", "worst\nseed", "inference\nms", "layer\nms", "ratio", "worst\nseed"),
    *("error", "peak\nMB", "pairwise\nms", "faster", "compiled\nms", "faster"),
)


class Progress:
    """A progress bar on stderr."""

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = RichProgress(*columns, TimeElapsedColumn(), console=console or Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting", total=plan.steps + 1)

    def __enter__(self) -> Progress:
        """Show it."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it."""
        self._bar.stop()

    def notify(self, step: str) -> None:
        """The next step begins."""
        self._bar.update(self._task, description=step)
        self._bar.advance(self._task)


def show(results: Results, console: Console | None = None) -> None:
    """Print everything as tables."""
    console = console or _wide_console()
    facts = results.machine
    kernels = "with" if facts["compiled_kernels"] else "without"
    console.print(
        f"{facts['cpu']}, {facts['threads']} thread(s), torch {facts['torch']}, Python {facts['python']}, "
        f"{kernels} compiled kernels"
    )
    console.print(speed_table(results))
    for note in results.notes:
        console.print(note, style="dim", markup=False)
    if results.growth:
        console.print(growth_table(results.growth))
    for use in results.memory:
        passes = "training" if use.training else "inference"
        peak = "not known" if use.peak_mb is None else " / ".join(f"{one:.0f}" for one in use.peaks_mb) + " MB"
        console.print(f"memory, {use.batch} x {use.length}, d_model {use.d_model}, {passes}: {peak}")
    for row in results.rows:
        if row.compile_seconds is not None:
            console.print(f"compiled at {row.shape}: the first call took {row.compile_seconds:.0f} s")


def speed_table(results: Results) -> Table:
    """One line for each shape and contender."""
    table = _table(f"Beside torch's transformer layer, medians over {results.seeds} seeds")
    table.add_column("batch x length", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in SPEED_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in results.rows:
        table.add_row(str(row.shape), row.contender, *_fields(row))
    return table


def _fields(row: Row) -> list[str]:
    error = row.output_error
    return [
        *_speed(row.training),
        *_speed(row.inference),
        NOTHING if error is None else f"{error:.0e}",
        NOTHING if row.peak_mb is None else f"{row.peak_mb:.0f}",
        _short(row.pairwise_ms),
        _times(row.speedup_over_pairwise),
        _short(row.compiled_pairwise_ms),
        _times(row.speedup_over_compiled_pairwise),
    ]


def _times(faster: float | None) -> str:
    return NOTHING if faster is None else f"{faster:.0f}x"


def _speed(speed: Speed | None) -> list[str]:
    if speed is None:
        return [NOTHING] * 4
    return [_short(speed.ms), _short(speed.layer_ms), f"{speed.ratio:.2f}", f"{speed.worst:.2f}"]


def _wide_console() -> Console:
    """A console; for a file or a pipe, which has no width of its own, wide enough that nothing is cut off."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 150))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def growth_table(points: tuple[GrowthPoint, ...]) -> Table:
    """Time and memory of every contender, one line for each length."""
    table = _table("One sequence of growing length, forward and backward")
    table.add_column("length", justify="right")
    by_place = {(point.contender, point.length): point for point in points}
    shown = [name for name in NAMES if any(point.contender == name for point in points)]
    for name in shown:
        table.add_column(f"{NAMES[name]}\nms", justify="right")
        table.add_column("\nMB", justify="right")
    for length in dict.fromkeys(point.length for point in points):
        cells = []
        for name in shown:
            point = by_place.get((name, length))
            cells += [NOTHING, NOTHING] if point is None else [_short(point.milliseconds), _short(point.peak_mb)]
        table.add_row(str(length), *cells)
    return table


def write(results: Results, folder: Path, console: Console | None = None) -> None:
    """Write attention.json, growth.csv and growth.png, and say so on stderr."""
    console = console or Console(stderr=True)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "attention.json"]
    written[0].write_text(json.dumps(results.document(), indent=2) + "\n", encoding="utf-8")
    if results.growth:
        written.append(folder / "growth.csv")
        with written[-1].open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow([f.name for f in fields(GrowthPoint)])
            rows.writerows(astuple(point) for point in results.growth)
        try:
            written.append(draw_growth(results.growth, folder / "growth.png"))
        except ModuleNotFoundError as missing:
            console.print(f"growth.png is not drawn: {missing}", style="yellow", markup=False, soft_wrap=True)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)


def _short(number: float | None) -> str:
    """Three digits are enough for a time."""
    if number is None:
        return NOTHING
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"

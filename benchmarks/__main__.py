"""``python -m benchmarks``: measurements that anyone can repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from contiformer.cli import Commands
from contiformer.data import did_you_mean, write_text
from contiformer.data.catalog import UEA_NAMES

RESULTS = Path("benchmarks/results")
#: Tables are at least so wide: numbers that are broken over lines cannot be read.
_WIDTH = 120

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout; progress goes to stderr.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: as torch chooses).")]
Output = Annotated[Path, typer.Option(file_okay=False, help="Folder of the results.")]


class _Benchmarks(Commands):
    program = "python -m benchmarks"


app = typer.Typer(name="benchmarks", cls=_Benchmarks, no_args_is_help=True, add_completion=False)


@app.callback()
def bench() -> None:
    """Measure speed, memory and accuracy on this machine."""


# Each command imports its own benchmark: --help answers at once.
# ruff: noqa: PLC0415


@app.command()
def attention(
    *,
    as_json: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A sample: few repeats, short lengths, nothing written by default.")
    ] = False,
    pairwise: Annotated[
        bool, typer.Option("--pairwise/--no-pairwise", help="Time the paper's algorithm too: minutes, gigabytes.")
    ] = True,
    resolution: Annotated[
        bool, typer.Option("--resolution", help="Only the errors behind degree='auto', by degree; no times.")
    ] = False,
    threads: Threads = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="BxN[xDxH]", help="Batch, length, width and heads to measure; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help=f"Folder of attention.json, growth.csv and growth.png (default: {RESULTS}; "
            "with --quick or --shape none).",
        ),
    ] = None,
) -> None:
    """Training and inference of continuous attention, against torch's transformer layer and the paper's algorithm.

    Ratios are taken within one run, the contenders in turn. Growth of time
    and memory with the length follows.
    """
    from benchmarks import attention as benchmark
    from benchmarks import report
    from benchmarks import resolution as degrees

    try:
        shapes = tuple(benchmark.Shape.parse(text) for text in shape or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from error
    if output is None and not quick and not shapes:
        output = RESULTS
    if resolution:
        seeds = degrees.QUICK_SEEDS if quick else degrees.SEEDS
        lines = degrees.measure(seeds, lambda text: typer.echo(text, err=True))
        path = None if output is None else output / "attention-resolution.json"
        title = "Errors of the output relative to its scale: quantiles, and the largest among the resolved"
        _finish(degrees.document(lines), path, as_json, title, degrees.HEADS, degrees.table(lines))
        raise typer.Exit(int(any(line.largest_error >= degrees.LIMIT for line in lines)))
    plan = benchmark.plan(quick=quick, pairwise=pairwise, threads=threads, shapes=shapes)
    with report.Progress(plan) as progress:
        results = benchmark.run(plan, progress.notify)
    if as_json:
        typer.echo(json.dumps(results.document(), indent=2))
    else:
        report.show(results)
    if output is not None:
        report.write(results, output)


@app.command()
def backbones(
    *,
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A set of the UEA archive; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A backbone for irregular series; may be repeated. S5 is always measured."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each epoch is timed (default: 7).")] = None,
    threads: Threads = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Train each model to its end for its accuracy on test data: long.")
    ] = False,
    as_json: AsJson = False,
    output: Output = RESULTS,
) -> None:
    """A training epoch of ContiFormer and its rivals relative to S5's, their memory, weights and accuracy.

    No points are dropped; everything is as Classifier(backbone=...) trains it.
    The contenders take turns.
    """
    from benchmarks import backbones as benchmark

    for name in data or ():
        if name not in UEA_NAMES:
            raise typer.BadParameter(f"{name!r}; {did_you_mean(name, UEA_NAMES)}", param_hint="--data")
    try:
        models = [benchmark.check_model(name) for name in model or benchmark.MODELS]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--model") from None
    output.mkdir(parents=True, exist_ok=True)  # now: where it cannot be made, nothing need be measured
    document = benchmark.run(
        data or benchmark.DATA,
        models,
        rounds=rounds or benchmark.ROUNDS,
        threads=threads,
        accuracy=accuracy,
        notify=lambda text: typer.echo(text, err=True),
    )
    heads = ("set", "model", "ms", "in S5's", "MB of a step", "weights", "accuracy")
    title = "A training epoch, all points: medians, taken in turn"
    _finish(document, output / "backbones.json", as_json, title, heads, benchmark.lines(document))
    for line in [] if as_json else benchmark.ratio_lines(document):
        typer.echo(line)


@app.command()
def data(*, as_json: AsJson = False, output: Output = RESULTS) -> None:
    r"""Parsing data sets, against aeon and polars on the same files, and collating batches.

    The comparison with aeon needs the extra: pip install 'contiformer\[bench]'.
    """
    from benchmarks import data as benchmark

    document = benchmark.run()
    heads = ("measurement", "ours", "others", "ratio")
    _finish(document, output / "data.json", as_json, "Data: medians, taken in turn", heads, benchmark.rows(document))


@app.command()
def events(*, as_json: AsJson = False, output: Output = RESULTS) -> None:
    """An epoch of ContiFormer against THP's, the likelihood's share of it, and an event appended to a stream.

    For the quality of event models see `python -m reproduction events --show`.
    """
    from benchmarks import events as benchmark

    document = benchmark.run()
    heads, title = ("measurement", "ours", "against", "ratio"), "Events: medians, taken in turn"
    _finish(document, output / "events-speed.json", as_json, title, heads, benchmark.rows(document))


@app.command()
def serving(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each measurement.")] = 60.0,
    as_json: AsJson = False,
    output: Output = RESULTS,
) -> None:
    r"""Load on `contiformer serve` from 1, 8 and 64 clients on this machine, beside direct calls: four minutes.

    Clients and server share the processors. Exit code 1 when a request fails.
    Needs the extra: pip install 'contiformer\[serve]'.
    """
    from benchmarks import serving as benchmark

    document = benchmark.run(seconds, notify=lambda text: typer.echo(text, err=True))
    heads = ("measurement", "series per second", "median", "99 %", "errors")
    title = "Serving: one series of 50 points in each request"
    _finish(document, output / "serving.json", as_json, title, heads, benchmark.rows(document))
    raise typer.Exit(int(any(found["errors"] for found in document["clients"].values())))


@app.command()
def accuracy(
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Which to run; may be repeated (default: all).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with the seeds 0, 1, 2, ...")] = 3,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 1,
    output: Output = RESULTS,
) -> None:
    """Test accuracy of the estimators without tuning: minutes for each case.

    Runs that are in accuracy.json already are not repeated, so that you can
    stop and go on.
    """
    from benchmarks import accuracy as benchmark

    names = case or list(benchmark.CASES)
    for name in names:
        if name not in benchmark.CASES:
            raise typer.BadParameter(f"{name!r}; {did_you_mean(name, benchmark.CASES)}", param_hint="--case")
    rows = benchmark.measure(names, list(range(seeds)), output / "accuracy.json", verbose, typer.echo)
    heads = ("case", "metric", "mean", "each seed", "seconds", "commit", "protocol")
    _show("Without tuning, on test data", heads, benchmark.summary(rows))


@app.command()
def choices(
    choice: Annotated[str, typer.Argument(metavar="NAME", help="heads (ten minutes on a core) or layers (twenty).")],
) -> None:
    """Cross-validation behind a default of ContiFormer, a line of JSON for each set and variant."""
    from benchmarks import choices as benchmark

    if choice not in benchmark.CHOICES:
        raise typer.BadParameter(f"{choice!r}; {did_you_mean(choice, benchmark.CHOICES)}", param_hint="NAME")
    for scores in benchmark.compare(choice):
        typer.echo(json.dumps(scores))


def _finish(
    document: dict[str, Any],
    path: Path | None,
    as_json: bool,
    title: str,
    heads: tuple[str, ...],
    lines: Iterable[tuple[str, ...]],
) -> None:
    """Write a document, and show it as JSON or as a table."""
    text = json.dumps(document, indent=1)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text + "\n")
    if as_json:
        typer.echo(text)
        return
    _show(title, heads, lines)
    if path is not None:
        typer.echo(f"wrote {path}")


def _show(title: str, heads: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    table = Table(*heads, title=title, title_justify="left")
    for line in lines:
        table.add_row(*line)
    console.print(table)


if __name__ == "__main__":
    app()

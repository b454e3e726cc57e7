"""``contiformer bench``: measurements that anyone can repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from contiformer.cli.bench_backbones import backbones
from contiformer.cli.bench_events import events

DEFAULT_OUTPUT = Path("benchmarks/results")

app = typer.Typer(name="bench", help="Measure speed and memory on this machine.", no_args_is_help=True)
app.command()(events)
app.command()(backbones)


@app.callback()
def bench() -> None:
    """Measure speed and memory on this machine."""


@app.command()
def attention(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON on stdout; progress goes to stderr.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A taste: few repeats, short lengths, nothing written by default.")
    ] = False,
    pairwise: Annotated[
        bool, typer.Option("--pairwise/--no-pairwise", help="Time the paper's algorithm too: minutes, gigabytes.")
    ] = True,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Where the time goes. Always shown when a bar is missed.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: as torch chooses).")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="BxN", help="Batch and length to measure; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help=f"Where attention.json, growth.csv and growth.png go (default: {DEFAULT_OUTPUT}; "
            "with --quick or --shape nowhere).",
        ),
    ] = None,
) -> None:
    """Forward and backward of continuous attention, against torch's transformer layer and the paper's algorithm.

    Ratios are taken within one run, the contenders in turn. Then: how time and memory grow with the length.
    """
    from contiformer.benchmarks import attention as benchmark  # noqa: PLC0415
    from contiformer.benchmarks import report  # noqa: PLC0415

    try:
        shapes = tuple(benchmark.Shape.parse(text) for text in shape or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from error
    plan = benchmark.plan(quick=quick, pairwise=pairwise, threads=threads, shapes=shapes)
    if output is None and not quick and not shapes:
        output = DEFAULT_OUTPUT
    with report.Progress(plan) as progress:
        results = benchmark.run(plan, progress.notify)
        if breakdown or (not as_json and not results.all_met):
            results = benchmark.with_breakdown(results, plan, progress.notify)
    document = results.document()
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        report.show(results)
    if output is not None:
        report.write(results, output)


@app.command()
def data(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    output: Annotated[
        Path, typer.Option(file_okay=False, help="Where data.json goes.", show_default=True)
    ] = DEFAULT_OUTPUT,
) -> None:
    """Parsing data sets, against aeon and polars on the same files, and putting batches together.

    The comparison with aeon needs the extra: pip install 'contiformer[bench]'.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks import data as benchmark  # noqa: PLC0415

    document = benchmark.run()
    text = json.dumps(document, indent=2)
    output.mkdir(parents=True, exist_ok=True)
    (output / "data.json").write_text(text + "\n")
    if as_json:
        typer.echo(text)
        return
    table = Table("what", "ours", "others", "ratio", title="Data: medians, taken in turn")
    for what, ours, others, ratio in benchmark.rows(document):
        table.add_row(what, ours, others, ratio)
    Console().print(table)
    typer.echo(f"wrote {output / 'data.json'}")


@app.command()
def accuracy(
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Which to run; may be repeated (default: all).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with the seeds 0, 1, 2, ...")] = 3,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 1,
    output: Annotated[Path, typer.Option(file_okay=False, help="Where accuracy.json is, or goes.")] = DEFAULT_OUTPUT,
) -> None:
    """How good the estimators are without tuning, on data that are here: minutes for each case.

    Runs that are in accuracy.json already are not repeated, so that it can be stopped and started again.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks import accuracy as benchmark  # noqa: PLC0415
    from contiformer.data.errors import DataError, did_you_mean  # noqa: PLC0415

    names = case or list(benchmark.CASES)
    for name in names:
        if name not in benchmark.CASES:
            raise typer.BadParameter(f"{name!r}; {did_you_mean(name, benchmark.CASES)}", param_hint="--case")
    try:
        rows = benchmark.measure(names, list(range(seeds)), output / "accuracy.json", verbose, typer.echo)
    except DataError as error:
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(1) from error
    table = Table("case", "metric", "mean", "each seed", "bar", "seconds", title="Without tuning, on test data")
    for line in benchmark.summary(rows):
        table.add_row(*line)
    Console().print(table)

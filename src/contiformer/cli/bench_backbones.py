"""``contiformer bench backbones``: the paper's table of efficiency on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contiformer.cli.options import AsJson
from contiformer.data.errors import did_you_mean

FILE = "backbones.json"
_WIDTH = 110


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
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: as torch chooses).")] = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Train each model to its end for its accuracy on test data: long.")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[Path, typer.Option(file_okay=False, help=f"Where {FILE} goes.")] = Path("benchmarks/results"),
) -> None:
    """A training epoch of ContiFormer and its rivals relative to S5's, their memory, weights and accuracy.

    No points are dropped; everything is as Classifier(backbone=...) trains it. The contenders take turns.
    """
    from contiformer.benchmarks import backbones as benchmark  # noqa: PLC0415
    from contiformer.data.readers.text import write_text  # noqa: PLC0415

    sets = [_set_called(name) for name in data or benchmark.DATA]
    models = [_model_called(name) for name in model or benchmark.MODELS]
    output.mkdir(parents=True, exist_ok=True)  # now: where it cannot be made, nothing need be measured
    document = benchmark.run(
        sets,
        models,
        rounds=rounds or benchmark.ROUNDS,
        threads=threads,
        accuracy=accuracy,
        notify=lambda text: typer.echo(text, err=True),
    )
    text = json.dumps(document, indent=1)
    write_text(output / FILE, text + "\n")
    if as_json:
        typer.echo(text)
        return
    _show(document)
    typer.echo(f"wrote {output / FILE}")


def _set_called(name: str) -> str:
    from contiformer.data.catalog.uea import NAMES  # noqa: PLC0415

    if name not in NAMES:
        raise typer.BadParameter(f"{name!r}; {did_you_mean(name, NAMES)}", param_hint="--data")
    return name


def _model_called(name: str) -> str:
    from contiformer.benchmarks.backbones import check_model  # noqa: PLC0415

    try:
        return check_model(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--model") from None


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks.backbones import lines, verdict_lines  # noqa: PLC0415

    console = Console(highlight=False)
    # a table whose numbers are broken over lines cannot be read
    console.width = max(console.width, _WIDTH)
    table = Table(title="A training epoch, all points: medians, taken in turn", title_justify="left")
    for head in ("set", "model"):
        table.add_column(head)
    for head in ("ms", "in S5's", "paper", "MB of a step", "weights", "accuracy"):
        table.add_column(head, justify="right", style="dim" if head == "paper" else None)
    for line in lines(document):
        table.add_row(*line)
    console.print(table)
    for verdict in verdict_lines(document):
        console.print(verdict)

"""``contiformer bench events``: what event models cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def events(
    output: Annotated[Path, typer.Option(file_okay=False, help="Where events-speed.json goes.")] = Path(
        "benchmarks/results"
    ),
) -> None:
    """An epoch of ContiFormer against THP's, the likelihood's share of it, and an event appended to a stream.

    Their quality is in `contiformer reproduce events`.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks import event_speed  # noqa: PLC0415
    from contiformer.data.readers.text import write_text  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    document = event_speed.run()
    write_text(output / "events-speed.json", json.dumps(document, indent=1))
    table = Table(
        "what", "ours", "against", "ratio", "bar", title="Events: medians, taken in turn", title_justify="left"
    )
    for line in event_speed.rows(document):
        table.add_row(*line)
    Console(highlight=False).print(table)
    typer.echo(f"wrote {output / 'events-speed.json'}")

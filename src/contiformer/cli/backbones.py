"""``contiformer backbones``: a table of the models that can be inside an estimator."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from contiformer.backbones import BACKBONES, make_backbone
from contiformer.tasks.baselines import BASELINES

#: Columns below which papers come after the table, and a width at which nothing wraps.
NARROW, UNBOUNDED = 150, 500
#: Of the series for which parameters are counted.
CHANNELS = 6


def backbones(as_json: bool) -> None:
    """Print the table, or JSON."""
    rows = described()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False)
    narrow = console.is_terminal and console.width < NARROW
    table = Table(box=None, pad_edge=False)
    for head in ("backbone", "causal", "irregular", "missing", "parameters", *([] if narrow else ["paper"])):
        table.add_column(head, justify="right" if head == "parameters" else "left", no_wrap=True)
    for row in rows:
        marks = (row["causal"], "yes" if row["irregular"] else "no", "yes" if row["missing"] else "no")
        table.add_row(row["name"], *marks, f"{row['parameters']:,}", *([] if narrow else [row["citation"]]))
    # a file or a pipe gets one line for each
    Console(highlight=False, width=None if console.is_terminal else UNBOUNDED).print(table)
    if narrow:
        for row in rows:
            console.print(f"{row['name']}: {row['citation']}", style="dim")
    console.print(f"Baselines, fitted in seconds without a training loop: {', '.join(BASELINES)}", style="dim")


def described() -> list[dict[str, Any]]:
    """A row for each backbone."""
    rows = []
    for name, kind in BACKBONES.items():
        able = kind.capabilities
        rows.append(
            {
                "name": name,
                "causal": "yes" if able.causal else "as an option" if kind.causal_option else "no",
                "irregular": able.irregular,
                "missing": able.missing,
                "parameters": sum(p.numel() for p in make_backbone(name, CHANNELS).parameters()),
                "citation": kind.citation,
            }
        )
    return rows

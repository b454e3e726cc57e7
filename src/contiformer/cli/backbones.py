"""``contiformer backbones``: the models that can be inside an estimator."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

#: For counting parameters: what a small set of series has.
CHANNELS = 6


def backbones(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Every backbone: what it can do, its number of parameters at its default size (6 channels), and its paper.

    [bold]Example[/bold]

      contiformer train classification --data BasicMotions --backbone mtan
    """
    rows = described()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table()
    for head in ("backbone", "causal", "irregular times", "missing channels", "parameters", "paper"):
        table.add_column(head, justify="right" if head == "parameters" else "left")
    for row in rows:
        marks = (row["causal"], "yes" if row["irregular"] else "no", "yes" if row["missing"] else "no")
        table.add_row(row["name"], *marks, f"{row['parameters']:,}", row["citation"])
    Console().print(table)


def described() -> list[dict[str, Any]]:
    """A row for each backbone."""
    from inspect import signature  # noqa: PLC0415

    from contiformer.backbones import BACKBONES, make_backbone  # noqa: PLC0415

    rows = []
    for name, kind in BACKBONES.items():
        model = make_backbone(name, CHANNELS)
        able = model.capabilities
        # contiformer hands its options on
        optional = "causal" in signature(kind).parameters or name == "contiformer"
        rows.append(
            {
                "name": name,
                "causal": "yes" if able.causal else "as an option" if optional else "no",
                "irregular": able.irregular,
                "missing": able.missing,
                "parameters": sum(p.numel() for p in model.parameters()),
                "citation": kind.citation,
            }
        )
    return rows

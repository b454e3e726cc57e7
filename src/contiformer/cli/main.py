"""The command ``contiformer``: what there is, and where it is written."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from contiformer.cli.bench import app as bench
from contiformer.cli.datasets import app as datasets
from contiformer.cli.demo import demo

app = typer.Typer(
    name="contiformer",
    help="Continuous-time transformers for irregular time series: exact, fast, and answers at any time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.add_typer(datasets)
app.add_typer(bench)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            number = version("contiformer")
        except PackageNotFoundError:  # run from a source tree that is not installed
            from contiformer import __version__ as number  # noqa: PLC0415
        typer.echo(f"contiformer {number}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Continuous-time transformers for irregular time series: exact, fast, and answers at any time."""


if __name__ == "__main__":
    app()

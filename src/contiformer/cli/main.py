"""The command ``contiformer``: what there is, and where it is written."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from contiformer.cli.backbones import backbones
from contiformer.cli.bench import app as bench
from contiformer.cli.commands import DEBUG, Commands
from contiformer.cli.datasets import app as datasets
from contiformer.cli.demo import demo
from contiformer.cli.doctor import doctor
from contiformer.cli.evaluate import evaluate
from contiformer.cli.plot import plot
from contiformer.cli.predict import predict
from contiformer.cli.reproduce import reproduce
from contiformer.cli.train import train

app = typer.Typer(
    name="contiformer",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, train, evaluate, predict, plot, doctor, backbones, reproduce):
    app.command()(command)
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
    _debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the trace of an error. May stand anywhere, also after a command.")
    ] = False,
) -> None:
    """Continuous-time transformers for irregular time series: exact, fast, and answers at any time.

    [bold]First steps[/bold]

      contiformer demo
      contiformer train classification --data BasicMotions --drop 0.3
      contiformer evaluate runs/classification-BasicMotions-drop0.3-seed0

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 stopped by Ctrl-C.
    """


if __name__ == "__main__":
    app()

"""Reference of the command line, from the commands themselves."""

import re
import textwrap
from collections.abc import Iterator

import click
from typer.main import get_command

from contiformer.cli.main import app


def reference() -> str:
    """Markdown of all commands: usage, description, examples, arguments and options."""
    program = get_command(app)
    return "\n\n".join(_sections(program, click.Context(program, info_name="contiformer"), level=2))


def _sections(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    parts = getattr(command, "commands", {})
    if level > 2:
        yield f"{'#' * (level - 1)} `{context.command_path}`"
        yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield _description(command.help or "")
    yield _options(command, context)
    for name, part in parts.items():
        yield from _sections(part, click.Context(part, info_name=name, parent=context), level + 1)


def _description(text: str) -> str:
    """Help with its headings in bold type and its examples as code."""
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"**\1**", text).replace("\\[", "[")
    paragraphs = text.split("\n\n")
    for n, one in enumerate(paragraphs):
        if n and paragraphs[n - 1].startswith("**"):
            paragraphs[n] = textwrap.indent(textwrap.dedent(one).replace("\n  ", " \\\n  "), "    ")
    return "\n\n".join(paragraphs)


def _options(command: click.Command, context: click.Context) -> str:
    records = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    # a bar within backticks ends no cell, and a backslash there would be shown
    rows = [f"| `{' '.join(names.split())}` | {_cell(text)} |" for names, text in records]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[required]", "(required)")

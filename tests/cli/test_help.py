"""Help of every command: it fits 80 columns, and nothing that must be typed is cut."""

import inspect
import re

import click
import pytest
from typer.main import get_command

from benchmarks import __main__ as benchmarks
from contiformer.cli.main import app
from reproduction import __main__ as reproduction
from tests.cli.conftest import run


def commands(command=None, words=()):
    command = command or get_command(app)
    yield words, command
    for name, part in getattr(command, "commands", {}).items():
        yield from commands(part, (*words, name))


COMMANDS = dict(commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_into_80_columns(monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    typed = [name for one in COMMANDS[words].params if isinstance(one, click.Option) for name in one.opts]
    typed += list(getattr(COMMANDS[words], "commands", {}))
    assert [name for name in typed if name not in result.stdout] == []


ALL = {
    **COMMANDS,
    **dict(commands(get_command(benchmarks.app), ("benchmarks",))),
    **dict(commands(get_command(reproduction.app), ("reproduction",))),
}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_paragraphs_and_examples_are_not_broken_again(words):
    """Behind the first paragraph rich keeps the lines of the source, so they have to be short themselves."""
    _, *rest = inspect.cleandoc(ALL[words].help or "").split("\n\n")
    shown = [re.sub(r"\[/?bold\]", "", line).replace("\\[", "[") for text in rest for line in text.splitlines()]
    assert [line for line in shown if len(line) > 78] == []

"""Command-line programs: exit codes, errors in one line, ``--debug`` anywhere, and options that several have."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from contiformer.data.errors import printable

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
DEBUG = "--debug"
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
#: Mistakes of users and of machines, as opposed to ours.
EXPECTED = (ValueError, OSError, ModuleNotFoundError, FloatingPointError, MemoryError)
# typer brings its own copy of click since 0.16, and uses the package before
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
_COLUMNS = ("id", "time", "type", "values", "variable", "value", "label", "static", "targets", "categorical")
_NAMED_BY_ARGUMENT = (*_COLUMNS, "duplicates", "at")


class _ExitCodes:
    """Exit codes: 0 for success, 1 for failure, 2 for wrong usage and 130 for Ctrl-C."""

    #: The name of the program in usage messages.
    program = "contiformer"
    make_context: Any
    invoke: Any

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit."""
        words = list(sys.argv[1:] if args is None else args)
        debug = DEBUG in words
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = self._code(prog_name or self.program, [word for word in words if word != DEBUG], debug, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _code(self, name: str, words: list[str], debug: bool, extra: dict[str, Any]) -> int:  # noqa: PLR0911
        try:
            with self.make_context(name, words, **extra) as context:
                self.invoke(context)
                return 0
        except typer.Exit as end:
            return int(end.exit_code)
        except _UsageError as error:
            return _wrong_usage(error)
        except (KeyboardInterrupt, typer.Abort):
            complain("stopped by Ctrl-C or a signal")
            return INTERRUPTED
        except BrokenPipeError:
            # the reader has gone, as in `... | head`; nothing more can be said there, nor flushed at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except EXPECTED as error:
            complain(as_options(_in_one_line(error)))
            return _traced(debug)
        except Exception as error:
            complain(f"unexpected {type(error).__name__}: {_in_one_line(error)}; {DEBUG} shows where, please report it")
            return _traced(debug)


class Commands(_ExitCodes, TyperGroup):
    """A program with several commands.

    Example:
        >>> import typer
        >>> from contiformer.cli import Commands
        >>> app = typer.Typer(cls=Commands, add_completion=False)
    """


class Program(_ExitCodes, TyperCommand):
    """A program without commands.

    Example:
        >>> import typer
        >>> from contiformer.cli import Program
        >>> app = typer.Typer(add_completion=False)
        >>> @app.command(cls=Program)
        ... def double(number: int) -> None:
        ...     print(2 * number)
        >>> app(["21"], standalone_mode=False)
        42
        0
    """


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line on stderr, without the place in our code."""
    typer.secho(f"Warning: {printable(as_options(' '.join(str(message).split())))}", fg="yellow", err=True)


def complain(problem: str) -> None:
    """One line in red on stderr."""
    typer.secho(f"Error: {printable(problem)}", fg="red", err=True)


def as_options(text: str) -> str:
    """Advice for Python in the words of the command line: ``time=`` is ``--time`` here.

    Example:
        >>> from contiformer.cli.commands import as_options
        >>> as_options("pass time=, and id= if there are several series")
        'pass --time, and --id if there are several series'
        >>> as_options('name both in variable= and value=; or pass duplicates="mean"')
        'name both in --variable and --value; or pass --duplicates "mean"'
    """
    argument = rf" ({'|'.join(_NAMED_BY_ARGUMENT)})=(?=([\w\[\"'])?)"
    return re.sub(argument, lambda found: f" --{found[1]}" + (" " if found[2] else ""), text)


def names_in(text: str | None) -> tuple[str, ...]:
    """The words between commas.

    Example:
        >>> from contiformer.cli.commands import names_in
        >>> names_in("pH, heart rate")
        ('pH', 'heart rate')
    """
    return () if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _traced(debug: bool) -> int:
    if debug:
        traceback.print_exc()
    return FAILED


def _wrong_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return WRONG_USAGE
    command = error.ctx.command_path if error.ctx is not None else "contiformer"
    complain(f"{' '.join(error.format_message().split())} See `{command} --help`.")
    return WRONG_USAGE

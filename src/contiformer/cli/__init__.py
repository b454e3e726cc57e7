"""The command line."""

from contiformer.cli.commands import Commands, Program

__all__ = ["Commands", "Program"]

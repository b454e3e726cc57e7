"""Public names of a package that are imported when they are first asked for: importing the package stays light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for the package; ``homes`` tells the module of each name, from the package on.

    Example:
        >>> lazy_names("contiformer.data", {"Series": "series"})("Series").__name__
        'Series'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find

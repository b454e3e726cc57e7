"""Public names of a package that are imported when they are first used: importing the package stays light."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], list[str]]:
    """``__getattr__`` and ``__all__`` of a package, given the public names of its modules.

    Example:
        >>> from contiformer.lazy import lazy_names
        >>> find, names = lazy_names("contiformer.data", {"series": ["Series"]})
        >>> find("Series").__name__, names
        ('Series', ['Series'])
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find, list(homes)

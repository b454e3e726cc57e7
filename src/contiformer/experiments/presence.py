"""Whether the data of a cell are here."""

from __future__ import annotations

from functools import cache

from contiformer.data.catalog import registry, store
from contiformer.experiments.cell import Cell


def not_here(cell: Cell) -> str | None:
    """Why a cell cannot be run: its data set is not in any of the folders that are searched."""
    return _not_here(cell.data, tuple(map(str, store.roots())))


@cache
def _not_here(name: str, _roots: tuple[str, ...]) -> str | None:
    # a part of a set is enough to go on with; its loader says what is missing
    return None if store.presence(registry.get(name)) != "no" else f"no data: {name} is not here"

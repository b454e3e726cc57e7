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
    info = registry.get(name)
    # a form that is known to lack some of the published sequences will do, one of which a file is missing will not
    if not info.forms or any(all(store.find(path) is not None for path in form.files) for form in info.forms):
        return None
    what = f"parts of {name} are" if store.presence(info) == "part" else f"{name} is"
    return f"no data: {what} not here"

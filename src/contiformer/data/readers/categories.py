"""Columns of categories: one 0/1 column for each category."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from contiformer.data.readers.columns import MISSING, Place, first, pick, words

#: A column with more is free text or numbers.
MOST_CATEGORIES = 200
#: Columns to be expanded, with their categories where they are known.
Categories = Mapping[str, Sequence[str] | None]


def categories_in(frame: Any, given: Sequence[str] | Mapping[str, Sequence[str]]) -> Categories:
    """The columns to expand: those that are named, and those whose type says that they hold categories.

    A mapping from columns to categories, as a model has one, is all there is.
    """
    if isinstance(given, Mapping):
        return given
    if isinstance(frame, pl.DataFrame):
        stated = [name for name, kind in frame.schema.items() if kind in (pl.Categorical, pl.Enum)]
    else:
        columns = getattr(frame, "columns", ())
        stated = [str(name) for name in columns if getattr(frame[name].dtype, "name", "") == "category"]
    return dict.fromkeys([*given, *stated])


def expanded(
    table: pl.DataFrame, names: Iterable[str], categories: Categories, place: Place
) -> tuple[list[pl.Series], dict[str, tuple[str, ...]]]:
    """The columns, one 0/1 column for each category of those that have some, and the categories."""
    columns: list[pl.Series] = []
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        column = pick(table, name, place)
        if name in categories:
            found[name], several = _one_hot(column, categories[name], place)
            columns += several
        else:
            columns.append(column)
    return columns, found


def columns_behind(names: Iterable[str], categories: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """The columns of a table that channels or features of these names were made from."""
    behind = {f"{column}={one}": column for column, known in categories for one in known}
    return list(dict.fromkeys(behind.get(name, name) for name in names))


def as_text(column: pl.Series) -> pl.Series:
    """Categories as text, null where missing; whole numbers that were stored as others are the same categories."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
        column = column.cast(pl.Int64) if bool((column == column.floor()).all()) else column
    text = column.cast(pl.String).str.strip_chars()
    return text.set(text.is_in(list(MISSING)), None)


def _one_hot(column: pl.Series, known: Sequence[str] | None, place: Place) -> tuple[tuple[str, ...], list[pl.Series]]:
    words(column.drop_nulls(), place)
    text = as_text(column)
    names = text.drop_nulls().unique().sort().to_list() if known is None else list(known)
    if len(names) > MOST_CATEGORIES:
        problem = f"has {len(names)} categories, more than {MOST_CATEGORIES}"
        raise place.error(problem, column=column.name, remedy="bring rare ones together, or leave the column out")
    strange = (text.is_not_null() & ~text.is_in(names)).to_numpy()
    if strange.any():
        at = first(strange)
        warnings.warn(
            f"row {place.of_row(at)[1]}, column {column.name!r}: {text[at]!r} was not there in training; "
            f"{int(np.sum(strange))} rows with such values count as none of the categories",
            stacklevel=2,
        )
    ones = [(text == name).cast(pl.Float32).alias(f"{column.name}={name}") for name in names]
    return tuple(names), ones

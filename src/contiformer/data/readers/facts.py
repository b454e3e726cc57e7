"""What the archive's formats have no place for (names, ids, units, dates), in a comment that other readers skip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from math import isnan
from numbers import Real
from typing import Any

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.readers.archive import numbered
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: A comment that starts with this holds what the format has no place for: names of channels, ids. Others skip it.
FACTS = "contiformer "


#: Files are written so that the readers' default encoding takes them.
ENCODING = "latin-1"


def facts_of(data: SeriesSet) -> dict[str, Any]:
    """What a reader would not know from the cases alone."""
    schema, ids = data.schema, data.ids
    facts: dict[str, Any] = {
        "channels": None if schema.channels == numbered(len(schema.channels)) else list(schema.channels),
        "units": list(schema.units) or None,
        "dates": schema.dates or None,
        "time_unit": schema.time_unit,
        "ids": None if ids == list(range(len(ids))) else ids,
    }
    return {name: value for name, value in facts.items() if value is not None}


def facts_text(facts: dict[str, Any]) -> str:
    """For a comment; only what comes back as it was."""
    try:
        text = json.dumps(facts, default=lambda value: value.item())
        again = json.loads(text)
        if again == facts and _are_facts(again):
            return FACTS + text
    except (TypeError, ValueError, AttributeError, RecursionError):
        pass
    raise DataError("an id or the name of a channel is neither text nor a whole number", remedy="name them with text")


def parse_facts(comment: str, row: int) -> dict[str, Any]:
    """Back from :func:`facts_text`; nothing for any other comment."""
    comment = comment.strip()
    if not comment.startswith(FACTS + "{"):
        return {}
    try:
        facts = json.loads(comment.removeprefix(FACTS))
    except (ValueError, RecursionError):
        facts = None
    if not _are_facts(facts):
        raise DataError(
            "the comment of contiformer is damaged", row=row, remedy="remove the comment, or write the file again"
        )
    return {name: tuple(value) if name in ("channels", "units") else value for name, value in facts.items()}


def _are_facts(facts: object) -> bool:
    return isinstance(facts, dict) and all(name in _FACTS and _FACTS[name](value) for name, value in facts.items())


def _is_list_of(kinds: Any) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(each, kinds) for each in value)


_FACTS: dict[str, Callable[[Any], bool]] = {
    "channels": _is_list_of(str),
    "units": _is_list_of(str | None),
    "ids": _is_list_of(str | int | None),
    "lengths": _is_list_of(int),
    "dates": lambda value: isinstance(value, bool),
    "time_unit": lambda value: isinstance(value, str),
    "label": lambda value: isinstance(value, str),
}


def writable(data: SeriesSet, what: str) -> SeriesSet:
    """The set in memory, which checks what a lazy one promises; refuses what neither ``.ts`` nor ARFF can hold."""
    data = data.in_memory()
    if len(data) == 0 or not data.channels:
        raise DataError(f"{what} needs at least one series with one channel")
    if data.schema.static or data.schema.targets:
        raise DataError(
            f"{what} has no place for static features or target series",
            remedy="write Parquet or CSV, or leave them out",
        )
    for series in data:
        if np.isinf(series.values).any():
            raise DataError(f"series {series.id!r} has infinite values", remedy="use NaN for what was not observed")
    return data


def check_labels(data: SeriesSet) -> list[str] | None:
    """Labels as text; None where there are none."""
    labels, classes = data.labels, data.classes
    if classes is not None:
        for name in classes:
            if not isinstance(name, str) or not encodable(name) or not name:
                raise DataError(
                    f"the class {name!r} is not a text in latin-1",
                    remedy="rename the classes; for numbers use text such as '1', which is what is read back",
                )
        return labels
    if all(label is None for label in labels):
        return None
    for n, label in enumerate(labels):
        if not isinstance(label, Real) or not np.isfinite(float(label)):
            raise DataError(
                f"series {n} has the label {label!r}, which is not a finite number",
                remedy="give all series a number, or name the classes: SeriesSet(..., classes=[...])",
            )
    return [repr(float(label)) for label in labels]


def value_texts(values: Iterable[float]) -> list[str]:
    """The shortest text that gives exactly the same float64, ``?`` for NaN."""
    return ["?" if isnan(value) else repr(value) for value in values]


def has_plain_times(series: Series) -> bool:
    """Whether the times are 0, 1, 2, ..."""
    return np.array_equal(series.times, np.arange(len(series)))


def encodable(text: str) -> bool:
    """Whether the files' encoding has all its letters."""
    try:
        text.encode(ENCODING)
    except UnicodeEncodeError:
        return False
    return True

"""Labels beside series."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contiformer.data.arrays import plain
from contiformer.data.errors import DataError
from contiformer.data.series_set import SeriesSet


def with_labels(data: SeriesSet, y: Any, *, classes: bool) -> SeriesSet:
    """The series with the labels ``y``, or with their own where y is None.

    Args:
        data: the series.
        y: one label for each, in their order.
        classes: labels are classes; otherwise they are numbers.

    Raises:
        DataError: a label is missing, or no number where numbers are asked for.
    """
    labels: list[Any] = [one.label for one in data] if y is None else _listed(y)
    if len(labels) != len(data):
        raise DataError(f"{len(labels)} labels for {len(data)} series", remedy="give one label for each series")
    for n, label in enumerate(labels):
        if label is None or (isinstance(label, float) and not np.isfinite(label)):
            name = data[n].id
            raise DataError(
                f"series {n if name is None else repr(name)} has no label",
                remedy="pass y, or name the column in label=; leave out series without one",
            )
        if not isinstance(label, str | int | float):
            raise DataError(
                f"the label {label!r} is a {type(label).__name__}", remedy="use words or numbers, and no gaps"
            )
    if not classes:
        try:
            labels = [float(label) for label in labels]
        except (TypeError, ValueError, OverflowError):
            raise DataError("labels are words, not numbers", remedy="use Classifier for classes") from None
    known = None
    if classes:
        kinds = {isinstance(label, str) for label in labels}
        if len(kinds) > 1:
            raise DataError("some labels are words and some numbers", remedy="use one kind")
        broken = next((label for label in labels if isinstance(label, float) and not label.is_integer()), None)
        if broken is not None:
            raise DataError(f"Unknown label type: {broken!r} is no class", remedy="use Regressor for numbers")
        known = tuple(sorted(set(labels)))
    series = [replace(one, label=label) for one, label in zip(data, labels, strict=True)]
    return SeriesSet(series, schema=replace(data.schema, classes=known), notes=data.notes)


def in_order_of(data: SeriesSet, y: Any) -> Any:
    """Labels with an index, as pandas has it: by the ids of the series, where those are what it holds.

    Raises:
        DataError: some ids have a label and some do not.
    """
    index = getattr(y, "index", None)
    if index is None or callable(index):
        return y
    ids = [one.id for one in data]
    known = set(index)
    if not known & set(ids) or known == set(range(len(ids))):
        return y
    missing = next((name for name in ids if name not in known), None)
    if missing is not None or len(known) < len(index):
        raise DataError(
            f"y has {'no label' if missing is not None else 'two labels'} for {missing!r}"
            if missing is not None
            else "y has two labels for one id",
            remedy="give one for each id, or a list in the order of the series",
        )
    return y.loc[ids]


def _listed(y: Any) -> list[Any]:
    # a list is not made an array: words beside NaN would become words
    given = y if isinstance(y, list | tuple) else np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    shape = np.shape(given)
    if not shape:
        raise DataError(f"y is {y!r}", remedy="pass one label for each series; name a column of a table in label=")
    if len(shape) == 2 and shape[1] == 1:
        given = np.asarray(given)[:, 0]
    elif len(shape) != 1:
        raise DataError(f"y has shape {shape}", remedy="pass one label for each series")
    return [plain(label) for label in given]


def without_labels(data: SeriesSet) -> SeriesSet:
    """The series, targets and all, but no labels."""
    schema = replace(data.schema, classes=None)
    return SeriesSet([replace(one, label=None) for one in data], schema=schema, notes=data.notes)

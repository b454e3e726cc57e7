"""Match labels and weights to series: by id beside a table, by position beside a list."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from contiformer.data.conversion import plain
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.tables import TABLES, Columns, Form, as_id, column_of, frame_library, number_of_rows

#: What becomes of series without a label.
MissingLabels = Literal["drop", "error"]
#: The types of missing values of pandas.
_NOTHING = ("NAType", "NaTType")
_WAYS = "a pandas Series with the ids as its index, a dictionary from ids, or a table with the ids in a column"


def matched(y: Any, data: SeriesSet, form: Form, X: Any, columns: Columns, name: str = "y") -> list[Any] | None:
    """One label (or weight) for each series of X, in their order; a DataError where nothing says which is whose.

    ``y`` is by id: a dictionary, a pandas Series with the ids as index, or a table with the ids in a column; by row:
    as many as the table has rows; by position: anything else, unless X is a table with several rows per id.
    """
    if y is None:
        return None
    if isinstance(y, Mapping):
        return _by_id(y.keys(), y.values(), data, name)
    if frame_library(y) is not None and form in (*TABLES, "set"):
        return labels_in(y, data, columns, name)[1]
    index = getattr(y, "index", None)
    if index is not None and not callable(index) and form in (*TABLES, "set"):
        found = _by_index(y, index, data, form, X, columns, name)
        if found is not None:
            return found
    labels = listed(y, name)
    return labels if form not in TABLES else _beside_table(labels, X, data, columns, name)


def _by_index(y: Any, index: Any, data: SeriesSet, form: Form, X: Any, columns: Columns, name: str) -> list[Any] | None:
    """Labels of a pandas Series, by id or by row; None where it has no index of its own, beside a set."""
    numbered = list(index) == list(range(len(index)))
    by_row = form == "polars" and numbered and len(y) == number_of_rows(X)
    by_row = index.equals(X.index) if form == "pandas" else by_row
    shared = {as_id(key) for key in index} & set(data.ids)
    given = [None if is_missing(label) else label for label in y.tolist()]
    if by_row:
        rows = _by_row(given, X, data, columns, name)
        if len(y) == len(data) == len(shared) and rows != _by_id(index, given, data, name):
            problem = f"the index of {name} could be rows of X or ids of X, and the labels differ"
            remedy = f"pass {name}.to_numpy() for labels of rows, {name}.to_dict() for those of ids"
            raise DataError(problem, remedy=remedy)
        return rows
    if len(shared) == len(data) or (shared and not (form == "set" and numbered)):
        found = _by_id(index, given, data, name)
        if form in TABLES and type(index).__name__ == "RangeIndex" and index.name is None and columns.id is not None:
            # reset_index(drop=True) looks like ids from 0 to n - 1
            order = list(dict.fromkeys(map(as_id, column_of(X, columns.id))))
            if len(order) == len(y) and dict(zip(order, given, strict=True)) != dict(zip(data.ids, found, strict=True)):
                problem = f"the index of {name} may be the ids of X, or count them as they appear in X"
                raise DataError(problem, remedy=f"pass {name}.to_dict() if it has the ids")
        return found
    if form == "set" and numbered:
        return None
    problem = f"the index of {name} ({_some(index)}) does not have the ids of X ({_some(data.ids)})"
    raise DataError(problem, remedy=f"pass {_WAYS}")


def _beside_table(labels: list[Any], X: Any, data: SeriesSet, columns: Columns, name: str) -> list[Any]:
    if len(data) == len(labels) == 1:
        return labels
    if len(labels) == number_of_rows(X):
        return _by_row(labels, X, data, columns, name)
    problem = f"{name} has {len(labels)} labels for {len(data)} series, and no ids that assign them"
    raise DataError(problem, remedy=f"name the column of the table in label=, or pass {_WAYS}")


def _some(ids: Iterable[Any]) -> str:
    shown = list(ids)
    return ", ".join(repr(plain(key)) for key in shown[:3]) + (", ..." if len(shown) > 3 else "")


def _by_id(keys: Iterable[Hashable], labels: Iterable[Any], data: SeriesSet, name: str) -> list[Any]:
    found: dict[Any, Any] = {}
    for key, label in zip(map(as_id, keys), labels, strict=True):
        if key in found:
            raise DataError(f"{name} has two labels for {key!r}", remedy="give one for each id")
        found[key] = plain(label)
    missing = [key for key in data.ids if key not in found]
    if missing:
        others = f" and {len(missing) - 1} other ids" if len(missing) > 1 else ""
        problem = f"{name} has no label for {missing[0]!r}{others}"
        raise DataError(problem, remedy=f"give one for each id, empty where it is unknown; {name} has {_some(found)}")
    return [found[key] for key in data.ids]


def labels_in(y: Any, data: SeriesSet, columns: Columns, name: str) -> tuple[str, list[Any]]:
    """The name of the column with labels in a table, and the labels of the series."""
    frame = y.collect() if hasattr(y, "collect") else y
    names = list(frame.columns)
    others = [column for column in names if column != columns.id]
    label = others[0] if columns.label is None and len(others) == 1 else columns.label
    if label not in others:
        problem = f"{name} has the columns {', '.join(map(str, names))}" + (f", not {label!r}" if label else "")
        raise DataError(problem, remedy="name the one that is to be predicted in label=; fit one model for each label")
    index = getattr(frame, "index", None)
    if columns.id in names or (index is not None and columns.id in index.names):
        keys = column_of(frame, columns.id)
    elif index is not None and {as_id(key) for key in index} >= set(data.ids):
        keys = list(index)
    else:
        raise DataError(f"{name} has no column {columns.id!r}", remedy=did_you_mean(str(columns.id), map(str, names)))
    return str(label), _by_id(keys, column_of(frame, label), data, name)


def _by_row(labels: list[Any], X: Any, data: SeriesSet, columns: Columns, name: str) -> list[Any]:
    if columns.id is None:
        rows: Iterable[Any] = [None] * len(labels)
    else:
        rows = map(as_id, column_of(X, columns.id))
    found: dict[Any, Any] = {}
    for row, (key, label) in enumerate(zip(rows, labels, strict=True), 1):
        if is_missing(label):
            continue
        if found.setdefault(key, label) != label:
            problem = f"{name} changes within series {key!r}, from {found[key]!r} to {label!r}"
            raise DataError(problem, row=row, remedy="give the same label in all rows of a series")
    return [found.get(key) for key in data.ids]


def listed(y: Any, name: str = "y") -> list[Any]:
    """A flat list of labels."""
    # a list is not made an array: words beside NaN would become words
    given = y if isinstance(y, list | tuple) else np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    shape = np.shape(given)
    if not shape:
        problem = f"{name} must have one label for each series, got {y!r}"
        raise DataError(problem, remedy="name a column of a table in label=")
    if len(shape) == 2 and shape[1] == 1:
        given = np.asarray(given)[:, 0]
    elif len(shape) != 1:
        raise DataError(
            f"{name} has shape {shape}", remedy="pass one label for each series; fit a model for each label"
        )
    return [plain(label) for label in given]


def is_missing(label: Any) -> bool:
    """None, NaN, and the marks of pandas."""
    return label is None or type(label).__name__ in _NOTHING or (isinstance(label, float) and math.isnan(label))


def with_labels(data: SeriesSet, y: Any, *, classes: bool, missing: MissingLabels = "drop") -> SeriesSet:
    """The series with the labels ``y``, one for each in their order, or with their own where y is None.

    Series without a label are left out with a warning, or refused.
    """
    labels: list[Any] = data.labels if y is None else listed(y)
    if missing not in ("drop", "error"):
        raise ValueError(f"missing_labels must be 'drop' or 'error', got {missing!r}")
    if len(labels) != len(data):
        raise DataError(f"{len(labels)} labels for {len(data)} series", remedy="give one label for each series")
    data, labels = only_labelled(data, labels, missing)
    for n, label in enumerate(labels):
        if not isinstance(label, str | int | float) or label in (np.inf, -np.inf):
            problem = f"series {_name(data, n)} has the label {label!r}, which is a {type(label).__name__}"
            raise DataError(problem, remedy="use words, finite numbers, or True and False")
    found = None
    if classes:
        if len({isinstance(label, str) for label in labels}) > 1:
            raise DataError("some labels are words and some numbers", remedy="use one kind")
        broken = next((label for label in labels if isinstance(label, float) and not label.is_integer()), None)
        if broken is not None:
            raise DataError(f"Unknown label type: {broken!r} is no class", remedy="use Regressor for numbers")
        found = tuple(sorted(set(labels)))
    else:
        try:
            labels = [float(label) for label in labels]
        except (TypeError, ValueError, OverflowError):
            raise DataError("labels are words, not numbers", remedy="use Classifier for classes") from None
    series = [replace(one, label=label) for one, label in zip(data, labels, strict=True)]
    return SeriesSet(series, schema=replace(data.schema, classes=found), notes=data.notes)


def _name(data: SeriesSet, n: int) -> str:
    return str(n) if data[n].id is None else repr(data[n].id)


def only_labelled(data: SeriesSet, labels: list[Any], missing: MissingLabels = "drop") -> tuple[SeriesSet, list[Any]]:
    """The series with a label, and their labels; the others are left out with a warning, or refused."""
    known = [n for n, label in enumerate(labels) if not is_missing(label)]
    count = len(data) - len(known)
    if not count:
        return data, labels
    if not known:
        raise DataError("no series has a label", remedy="pass y (or --labels FILE), or name the column in label=")
    lacking = _name(data, next(n for n, label in enumerate(labels) if is_missing(label)))
    if missing == "error":
        problem = f"series {lacking} has no label ({count} of {len(data)} have none)"
        raise DataError(problem, remedy='leave them out, or pass missing_labels="drop"')
    said = f"{count} of {len(data)} series have no label and are left out, the first of them {lacking}"
    warnings.warn(said, stacklevel=2)
    return data.select(known), [labels[n] for n in known]


def weights_of(data: SeriesSet) -> list[float] | None:
    """The weights of the series, None where they have none."""
    weights = [one.weight for one in data if one.weight is not None]
    return weights if weights else None


def with_weights(data: SeriesSet, weights: list[Any] | None) -> SeriesSet:
    """The series with a weight in the loss, one for each in their order."""
    if weights is None:
        return data
    if len(weights) != len(data):
        raise DataError(f"{len(weights)} weights for {len(data)} series", remedy="give one for each in sample_weight=")
    try:
        numbers = [float(weight) for weight in weights]
    except (TypeError, ValueError):
        raise DataError("sample_weight holds something that is no number", remedy="give numbers of 0 or more") from None
    bad = next((n for n, weight in enumerate(numbers) if not 0 <= weight < np.inf), None)
    if bad is not None or not any(numbers):
        problem = "all weights are zero" if bad is None else f"series {_name(data, bad)} has the weight {numbers[bad]}"
        raise DataError(problem, remedy="give finite numbers of 0 or more in sample_weight=, and one above 0")
    series = [replace(one, weight=weight) for one, weight in zip(data, numbers, strict=True)]
    return SeriesSet(series, schema=data.schema, notes=data.notes)

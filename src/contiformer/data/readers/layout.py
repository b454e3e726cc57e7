"""What a table that we wrote says about itself, so that it is read back equal without a word from the user."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from contiformer.data.errors import DataError
from contiformer.data.readers.frames import from_frame
from contiformer.data.readers.place import Place
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

#: Key of the description in a Parquet file, and start of the comment line in a CSV file.
KEY = "contiformer"
_FORMAT = 1
_TYPES: dict[str, Any] = {"str": pl.String, "int": pl.Int64, "float": pl.Float64}


def describe(data: SeriesSet) -> str:
    """JSON: the schema, the types of ids and labels, and whether ids were given at all."""
    series = list(data)
    ids = {type(one.id).__name__ for one in series if one.id is not None}
    labels = {type(one.label).__name__ for one in series if one.label is not None}
    some_without = any(one.label is None for one in series)
    if labels and (len(labels) > 1 or some_without or not labels <= set(_TYPES)):
        raise DataError("labels are of different types or missing for some series", remedy="label all or none")
    narrow = all(one.values.dtype == np.float32 for one in series) and bool(series)
    fixed = all(one.static is not None and one.static.dtype == np.float32 for one in series) and bool(series)
    if len(ids) > 1 or not ids <= {"str", "int"} or any(one.id in {"", None} for one in series if ids):
        raise DataError("ids are of different types, empty or missing for some", remedy="name all series or none")
    if any(one.label == "" or one.label != one.label for one in series):
        raise DataError("a label is empty or NaN", remedy="label all series or none")
    types = {
        "id": next(iter(ids), None),
        "label": next(iter(labels), None),
        "values": "float32" if narrow else None,
        "static": "float32" if fixed else None,
    }
    return json.dumps({"format": _FORMAT, "schema": data.schema.to_dict(), "types": types})


def overrides(text: str) -> dict[str, Any]:
    """Types of columns that must not be guessed."""
    description = _parsed(text)
    types = {name: _TYPES[kind] for name, kind in description["types"].items() if kind in _TYPES}
    schema = Schema.from_dict(description["schema"])
    return types | dict.fromkeys((*schema.channels, *schema.static), pl.Float64)


def read_described(table: pl.DataFrame, text: str, place: Place) -> SeriesSet:
    """The set that was written with this description."""
    description = _parsed(text)
    schema, types = Schema.from_dict(description["schema"]), description["types"]
    label = "label" if types.get("label") else None
    try:
        read = from_frame(
            table,
            id="id",
            time="time",
            values=schema.channels,
            label=label,
            static=schema.static,
            duplicates="keep",
            order="appearance",
            place=place,
        )
    except DataError as error:
        if error.remedy is None:
            error.remedy = "write the file again"
        raise

    def restored(series: Series) -> Series:
        named = series if types.get("id") else replace(series, id=None)
        if types.get("values") == "float32":
            named = replace(named, values=named.values.astype(np.float32))
        if types.get("static") == "float32" and named.static is not None:
            named = replace(named, static=named.static.astype(np.float32))
        return named

    return SeriesSet([restored(series) for series in read], schema=schema)


def _parsed(text: str) -> dict[str, Any]:
    try:
        description = json.loads(text)
        if description["format"] != _FORMAT:
            raise DataError(
                f"the file has format {description['format']}, this version reads {_FORMAT}",
                remedy="upgrade contiformer",
            )
        if not _makes_sense(Schema.from_dict(description["schema"]), description["types"]):
            raise TypeError("names or types")
        return description
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"the description of the file is damaged ({error!r})", remedy="write the file again") from None


def _makes_sense(schema: Schema, types: Any) -> bool:
    names = (schema.channels, schema.static, schema.targets)
    return (
        all(isinstance(some, tuple) and all(isinstance(name, str) for name in some) for some in names)
        and isinstance(schema.units, tuple)
        and all(isinstance(unit, str | None) for unit in schema.units)
        and (schema.classes is None or _are_labels(schema.classes))
        and isinstance(schema.dates, bool)
        and isinstance(schema.time_unit, str | None)
        and isinstance(types, dict)
        and all(isinstance(kind, str | None) for kind in types.values())
    )


def _are_labels(classes: Any) -> bool:
    return isinstance(classes, tuple) and all(isinstance(label, str | int | float) for label in classes)

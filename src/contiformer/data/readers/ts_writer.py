"""Writer of ``.ts``, the text format of the UEA archive."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isnan
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.conversion import as_datetimes, as_times
from contiformer.data.errors import DataError, PathText, naming_file
from contiformer.data.files import write_text
from contiformer.data.readers.ts import METADATA, is_metadata
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet, numbered

#: Files are written so that the reader's default encoding takes them.
_ENCODING = "latin-1"
_LARGEST_EXACT_DATE = 2**53 / 1e6


def write_ts(data: SeriesSet, path: PathText, *, problem_name: str | None = None) -> None:
    """Write a set so that :func:`read_ts` gives it back equal; gzipped when the name ends in ``.gz``.

    Times other than 0, 1, 2, ... are written as time stamps, dates in ISO form. Names of channels, units and ids, for
    which the format has no place, go into a comment.

    A DataError names what the format cannot hold: static features, targets, class names with blanks or colons. The
    problem name of the header is by default the file's name up to the first dot.
    """
    with naming_file(path):
        data = _checked(data)
        name = Path(path).name.partition(".")[0] if problem_name is None else problem_name
        if problem_name is not None and (not _encodable(name) or name.split() != [name]):
            raise DataError(f"the problem name {name!r} is not one word of latin-1", remedy="choose another")
        labels, declaration = _labels(data)
        write_text(path, "\n".join(_lines(data, name, labels, declaration)) + "\n", _ENCODING)


def _checked(data: SeriesSet) -> SeriesSet:
    """The set in memory, which checks what a lazy one promises."""
    data = data.in_memory()
    if len(data) == 0 or not data.channels:
        raise DataError("a .ts file needs at least one series with one channel")
    if data.schema.static or data.schema.targets:
        problem = "a .ts file has no place for static features or target series"
        raise DataError(problem, remedy="write Parquet or CSV, or leave them out")
    for series in data:
        if np.isinf(series.values).any():
            raise DataError(f"series {series.id!r} has infinite values", remedy="use NaN for what was not observed")
    return data


def _labels(data: SeriesSet) -> tuple[list[str] | None, str]:
    """The text of each label, None where there are none, and the line that declares them."""
    labels, classes = data.labels, data.classes
    if classes is None:
        if all(label is None for label in labels):
            return None, "@classLabel false"
        for n, label in enumerate(labels):
            if not isinstance(label, Real) or not np.isfinite(float(label)):
                problem = f"series {n} has the label {label!r}, which is not a finite number"
                remedy = "give all series a number, or name the classes: SeriesSet(..., classes=[...])"
                raise DataError(problem, remedy=remedy)
        return [repr(float(label)) for label in labels], "@targetLabel true"
    for name in classes:
        if not isinstance(name, str) or not _encodable(name) or not name:
            problem = f"the class {name!r} is not a text in latin-1"
            remedy = "rename the classes; for numbers use text such as '1', which is what is read back"
            raise DataError(problem, remedy=remedy)
        if name.split() != [name] or ":" in name:
            problem = f"the class name {name!r} has a blank or a colon in it"
            raise DataError(problem, remedy="replace it, for example with _")
    return labels, " ".join(["@classLabel true", *map(str, classes)])


def _lines(data: SeriesSet, name: str, labels: list[str] | None, declaration: str) -> list[str]:
    metadata, lengths = _metadata(data), set(data.lengths.tolist())
    stamped = not all(np.array_equal(series.times, np.arange(len(series))) for series in data)
    equal = not stamped and len(lengths) == 1 and lengths != {0}
    in_words = stamped and data.schema.dates and all(_exact_as_dates(series.times) for series in data)
    missing = any(bool(np.isnan(series.values).any()) for series in data)
    lines = [f"#{_metadata_text(metadata)}"] if metadata else []
    lines += [
        f"@problemName {''.join(letter if letter.isascii() and letter.isprintable() else '_' for letter in name)}",
        f"@timeStamps {str(stamped).lower()}",
        f"@missing {str(missing or stamped).lower()}",
        f"@univariate {str(len(data.channels) == 1).lower()}",
        f"@dimensions {len(data.channels)}",
        f"@equalLength {str(equal).lower()}",
        *([f"@seriesLength {lengths.pop()}"] if equal else []),
        declaration,
        "@data",
    ]
    for n, series in enumerate(data):
        body = ":".join(
            _stamped(series, in_words) if stamped else map(",".join, map(_value_texts, series.values.T.tolist()))
        )
        if labels is None and not body:
            raise DataError(f"series {n} has no points and no label: its line would be blank", remedy="leave it out")
        lines.append(body if labels is None else f"{body}:{labels[n]}")
    return lines


def _metadata(data: SeriesSet) -> dict[str, Any]:
    """Metadata that the format has no place for."""
    schema, ids = data.schema, data.ids
    found: dict[str, Any] = {
        "channels": None if schema.channels == numbered("channel", len(schema.channels)) else list(schema.channels),
        "units": list(schema.units) or None,
        "dates": schema.dates or None,
        "time_unit": schema.time_unit,
        "ids": None if ids == list(range(len(ids))) else ids,
    }
    return {name: value for name, value in found.items() if value is not None}


def _metadata_text(metadata: dict[str, Any]) -> str:
    """The comment; refuses what would not be read back as it was."""
    try:
        text = json.dumps(metadata, default=lambda value: value.item())
        again = json.loads(text)
        if again == metadata and is_metadata(again):
            return METADATA + text
    except (TypeError, ValueError, AttributeError, RecursionError):
        pass
    raise DataError("an id or the name of a channel is neither text nor a whole number", remedy="name them with text")


def _stamped(series: Series, in_words: bool) -> list[str]:
    """The dimensions with time stamps; values that were not observed only where their time would be lost without."""
    times = as_datetimes(series.times).astype(str).tolist() if in_words else list(map(repr, series.times.tolist()))
    times_differ = bool(np.all(np.diff(series.times) > 0))
    only_observed = times_differ and bool(series.observed.any(axis=1).all())
    return [
        ",".join(
            f"({time},{value})"
            for time, value in zip(times, _value_texts(column), strict=True)
            if not (only_observed and value == "?")
        )
        for column in series.values.T.tolist()
    ]


def _value_texts(values: Iterable[float]) -> list[str]:
    """The shortest text that gives exactly the same float64, ``?`` for NaN."""
    return ["?" if isnan(value) else repr(value) for value in values]


def _exact_as_dates(times: NDArray[np.float64]) -> bool:
    return bool(np.all(np.abs(times) < _LARGEST_EXACT_DATE)) and np.array_equal(as_times(as_datetimes(times)), times)


def _encodable(text: str) -> bool:
    """Whether latin-1 has all letters of the text."""
    return all(ord(letter) < 256 for letter in text)

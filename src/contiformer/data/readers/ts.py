"""The ``.ts`` text format of the UEA archive, as aeon and sktime use it.

A header of ``@keyword value`` lines, then ``@data``, then one case a line: dimensions separated by ``:``, values by
``,``, the label last. With ``@timeStamps true`` a value is ``(time,value)``, the time a number or an ISO datetime.

Numbers of a regular file are parsed all at once. Whatever is not regular (an empty dimension, dimensions of different
length, blanks in odd places, an error) is read again line by line, which is slower and knows the line.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace as with_fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.readers.archive import (
    assembled,
    merged,
    nearest,
    number,
    parse_cases,
    plain_float,
    regular_arrays,
    shortened,
)
from contiformer.data.readers.facts import (
    ENCODING,
    check_labels,
    encodable,
    facts_of,
    facts_text,
    has_plain_times,
    value_texts,
    writable,
)
from contiformer.data.readers.text import read_text, write_text
from contiformer.data.readers.ts_header import (
    Header,
    read_header,
)
from contiformer.data.series import Label, Series
from contiformer.data.series_set import SeriesSet
from contiformer.data.times import as_datetimes, as_times

PathText = str | PathLike[str]


_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")


_LARGEST_EXACT_DATE = 2**53 / 1e6


def read_ts(path: PathText, *, encoding: str = "latin-1") -> SeriesSet:
    """Read a ``.ts`` file, gzipped or not.

    Without time stamps the times are 0, 1, 2, ...; with them, the dimensions of a case are merged on the union of their
    times. Where a dimension has no value there is NaN, and ``notes`` counts such dimensions. Labels of classes stay the
    words they are in the file, those of ``@targetLabel`` become numbers. Ids are positions from 0.

    Args:
        path: the file.
        encoding: of the names and labels in it.

    Raises:
        DataError: with file, line and remedy, for anything that cannot be read without guessing.

    Example:
        >>> text = "@classLabel true up down\\n@data\\n1,2,?:4,5,6:up\\n3,2:7,6:down\\n"
        >>> _ = Path("waves.ts").write_text(text)
        >>> waves = read_ts("waves.ts")
        >>> waves.lengths.tolist(), waves.labels, waves[0].values[1].tolist()
        ([3, 2], ['up', 'down'], [2.0, 5.0])
    """
    try:
        text = read_text(path, encoding).removeprefix("ï»¿")
        header, start = read_header(text)
        rows, lines = _cases(text, start, header.data_row)
        read = None if header.time_stamps else _at_once(lines, header)
        return read or _one_by_one(rows, lines, header)
    except DataError as error:
        raise error.within(path) from None


def write_ts(data: SeriesSet, path: PathText, *, problem_name: str | None = None) -> None:
    """Write a set so that :func:`read_ts` gives it back equal; gzipped when the name ends in ``.gz``.

    Times other than 0, 1, 2, ... are written as time stamps, dates in ISO form. Names of channels, units and ids, for
    which the format has no place, go into a comment.

    Args:
        data: series without static features and target series, with classes (words), numbers or no labels.
        path: the file.
        problem_name: for the header; the file's name up to the first dot if None.

    Raises:
        DataError: for what the format cannot hold, such as class names with blanks or colons.
    """
    try:
        data = writable(data, "a .ts file")
        name = Path(path).name.partition(".")[0] if problem_name is None else problem_name
        if problem_name is not None and (not encodable(name) or name.split() != [name]):
            raise DataError(f"the problem name {name!r} is not one word of latin-1", remedy="choose another")
        labels, declaration = _label_texts(data)
        write_text(path, "\n".join(_file(data, name, labels, declaration)) + "\n", ENCODING)
    except DataError as error:
        raise error.within(path) from None


def _cases(text: str, start: int, data_row: int) -> tuple[list[int], list[bytes]]:
    """Line numbers and lines that are not blank or comments."""
    lines = text[start:].encode("utf-8", "surrogatepass").split(b"\n")
    kept = [n for n, line in enumerate(lines) if not line.startswith(b"#") and line.strip()]
    if not kept:
        raise DataError("there is no case after @data", row=data_row, remedy="the file may be cut off")
    first = data_row + 1
    return [first + n for n in kept], [lines[n] for n in kept] if len(kept) < len(lines) else lines


def _at_once(lines: list[bytes], header: Header) -> SeriesSet | None:
    """All cases of a regular file; None where any of it is not as regular as it looks."""
    labels: list[Label] | None = None
    bodies = lines
    if header.labelled:
        parts = [line.rpartition(b":") for line in lines]
        bodies = [part[0] for part in parts]
        if header.classes is None:
            try:
                labels = [_target(part[2].decode("utf-8", "surrogatepass")) for part in parts]
            except DataError:
                return None
        else:
            known = {name.encode("utf-8", "surrogatepass"): name for name in header.classes}
            found = [known.get(part[2].strip()) for part in parts]
            labels = [name for name in found if name is not None]
            if len(labels) < len(lines):
                return None
    read = parse_cases(bodies)
    if read is None:
        return None
    values, lengths, channels = read
    wanted = header.length or (lengths[0] if header.equal_length else None)
    if header.dimensions not in (None, channels) or (wanted is not None and bool((lengths != wanted).any())):
        return None
    missing = int(np.isnan(values).sum()) if header.missing is False else 0
    return _assembled(regular_arrays(values, lengths, channels), labels, header, {}, missing, channels)


def _one_by_one(rows: list[int], lines: list[bytes], header: Header) -> SeriesSet:
    """The same, line by line; knows the line of an error."""
    reading = _Reading(header)
    for row, line in zip(rows, lines, strict=True):
        try:
            reading.add(line.decode("utf-8", "surrogatepass"))
        except DataError as error:
            raise DataError(error.problem, row=row, column=error.column, remedy=error.remedy) from None
    return reading.finished()


class _Reading:
    """Cases collected as single values with their case, dimension and time."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.channels = header.dimensions
        self.length = header.length
        self.labels: list[Label] = []
        self.counts: list[int] = []
        self.times: list[NDArray[np.float64]] = []
        self.values: list[float] = []
        self.kind: str | None = None
        self.known = frozenset(header.classes or ())

    def add(self, line: str) -> None:
        """One case."""
        body = line
        if self.header.labelled:
            body, colon, label = line.rpartition(":")
            if not colon:
                raise DataError("there is no label", remedy="end the line with : and the label")
            self.labels.append(self._label(label.strip()))
        if self.header.time_stamps:
            counts = self._timed(body)
        else:
            fields = [_fields(text) for text in body.split(":")]
            counts = [len(values) for values in fields]
            self.times += [np.arange(count, dtype=np.float64) for count in counts]
            self.values += [number(text, f"dimension {d}") for d, values in enumerate(fields, 1) for text in values]
        self.channels = self.channels or len(counts)
        if len(counts) != self.channels:
            raise DataError(
                f"{len(counts)} dimensions instead of {self.channels}",
                remedy="check the number of colons, and that the label is there",
            )
        if self.header.equal_length and self.length is None:
            self.length = counts[0]
        if self.length is not None and any(count != self.length for count in counts):
            bad = next(d for d, count in enumerate(counts) if count != self.length)
            raise DataError(
                f"{counts[bad]} values instead of {self.length}",
                column=f"dimension {bad + 1}",
                remedy="repair the line, or say @equalLength false and leave out @seriesLength",
            )
        self.counts += counts

    def _label(self, text: str) -> Label:
        classes = self.header.classes
        if classes is None:
            return _target(text)
        if text in self.known:
            return text
        if text in ("", "?"):
            raise DataError("the label is missing", remedy="end the line with : and the class")
        raise DataError(
            f"the label {shortened(text)} is none of the classes in @classLabel", remedy=nearest(text, classes)
        )

    def _timed(self, body: str) -> list[int]:
        pairs = _PAIR.findall(body)
        outline = _PAIR.sub("p", body)
        fields = [_fields(text) for text in outline.split(":")]
        counts = [len(texts) for texts in fields]
        if sum(counts) != len(pairs) or any(text != "p" for texts in fields for text in texts):
            odd = next((text for texts in fields for text in texts if text != "p"), body)
            raise DataError(
                f"{shortened(odd)} where (time,value) should be",
                remedy="write (time,value),(time,value) or say @timeStamps false",
            )
        self.times.append(self._moments([time.strip() for time, _ in pairs]))
        of_dimension = np.repeat(np.arange(1, len(counts) + 1), counts).tolist()
        self.values += [number(v.strip(), f"dimension {d}") for (_, v), d in zip(pairs, of_dimension, strict=True)]
        return counts

    def _moments(self, texts: list[str]) -> NDArray[np.float64]:
        times: list[Any]
        if not texts:
            return np.zeros(0)
        try:
            times = [plain_float(text) for text in texts]
            kinds = ["numbers"] * len(times)
        except ValueError:
            times = [_moment(text) for text in texts]
            kinds = ["dates without zone" if time.tzinfo is None else "dates with zone" for time in times]
        self.kind = self.kind or kinds[0]
        for text, kind in zip(texts, kinds, strict=True):
            if kind != self.kind:
                raise DataError(
                    f"the time {shortened(text)} is one of {kind}, those before were {self.kind}",
                    remedy="use one kind only",
                )
        return as_times(times)

    def finished(self) -> SeriesSet:
        """The set."""
        channels = self.channels or 1
        counts = np.asarray(self.counts, np.int64)
        dimension = np.repeat(np.arange(len(counts)), counts)
        times = np.concatenate(self.times) if self.times else np.zeros(0)
        values = np.asarray(self.values, np.float64)
        cases = len(counts) // channels
        arrays = merged(dimension // channels, dimension % channels, times, values, cases, channels)
        lengths = np.fromiter((len(stamps) for stamps, _ in arrays), np.int64, cases)
        short = int((counts.reshape(cases, channels) < lengths[:, None]).sum())
        where = "at every time" if self.header.time_stamps else "up to the length"
        notes = {f"dimensions without a value {where} of their case, filled with NaN": short} if short else {}
        missing = int(np.isnan(values).sum()) if self.header.missing is False else 0
        header = self.header
        if self.kind not in (None, "numbers"):
            header = with_fields(header, facts={"dates": True} | header.facts)
        return _assembled(arrays, self.labels if header.labelled else None, header, notes, missing, channels)


def _fields(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _target(text: str) -> float:
    value = number(text.strip() or "?", "label")
    if np.isnan(value):
        raise DataError("the label is missing", remedy="end the line with : and a number")
    return value


def _moment(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise DataError(
            f"the time {shortened(text)} is neither a number nor an ISO datetime",
            remedy="write 12.5 or 2024-05-01T13:45:00",
        ) from None


def _assembled(
    arrays: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    labels: Sequence[Label] | None,
    header: Header,
    notes: dict[str, int],
    missing: int,
    channels: int,
) -> SeriesSet:
    if missing:
        notes = notes | {"missing values in spite of @missing false": missing}
    return assembled(arrays, labels, header.classes, header.facts, notes, channels)


def _label_texts(data: SeriesSet) -> tuple[list[str] | None, str]:
    labels = check_labels(data)
    if data.classes is None:
        return labels, "@classLabel false" if labels is None else "@targetLabel true"
    names = [str(name) for name in data.classes]
    for name in names:
        if name.split() != [name] or ":" in name:
            raise DataError(
                f"the class name {name!r} has a blank or a colon in it", remedy="replace it, for example with _"
            )
    return labels, " ".join(["@classLabel true", *names])


def _file(data: SeriesSet, name: str, labels: list[str] | None, declaration: str) -> list[str]:
    facts, lengths = facts_of(data), set(data.lengths.tolist())
    stamped = not all(has_plain_times(series) for series in data)
    equal = not stamped and len(lengths) == 1 and lengths != {0}
    in_words = stamped and data.schema.dates and all(_exact_as_dates(series.times) for series in data)
    missing = any(bool(np.isnan(series.values).any()) for series in data)
    lines = [f"#{facts_text(facts)}"] if facts else []
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
            _stamped(series, in_words) if stamped else map(",".join, map(value_texts, series.values.T.tolist()))
        )
        if labels is None and not body:
            raise DataError(f"series {n} has no points and no label: its line would be blank", remedy="leave it out")
        lines.append(body if labels is None else f"{body}:{labels[n]}")
    return lines


def _stamped(series: Series, in_words: bool) -> list[str]:
    """The dimensions; values that were not observed only where their time would be lost without them."""
    times = as_datetimes(series.times).astype(str).tolist() if in_words else list(map(repr, series.times.tolist()))
    times_differ = bool(np.all(np.diff(series.times) > 0))
    only_observed = times_differ and bool(series.observed.any(axis=1).all())
    return [
        ",".join(
            f"({time},{value})"
            for time, value in zip(times, value_texts(column), strict=True)
            if not (only_observed and value == "?")
        )
        for column in series.values.T.tolist()
    ]


def _exact_as_dates(times: NDArray[np.float64]) -> bool:
    return bool(np.all(np.abs(times) < _LARGEST_EXACT_DATE)) and np.array_equal(as_times(as_datetimes(times)), times)

"""The ``.ts`` text format of the UEA archive, as aeon and sktime use it.

A header of ``@keyword value`` lines, then ``@data``, then one case a line: dimensions separated by ``:``, values by
``,``, the label last. With ``@timeStamps true`` a value is ``(time,value)``, the time a number or an ISO datetime.

Numbers of a regular file are parsed all at once. Whatever is not regular (an empty dimension, dimensions of different
length, blanks in odd places, an error) is read again line by line, which is slower and knows the line.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from itertools import pairwise
from math import isnan
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.guard import guarded
from contiformer.data.readers.text import read_text, write_text
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.data.times import as_datetimes, as_times

PathText = str | PathLike[str]

#: A comment that starts with this holds what the format has no place for: names of channels, ids. Others skip it.
FACTS = "contiformer "
#: Files are written so that the readers' default encoding takes them.
ENCODING = "latin-1"
#: A table of all channels at all times may be this much larger than the values that fill it, beyond ten million cells.
MOST_CELLS_PER_VALUE = 256
CELLS_ALLOWED_ANYWAY = 10_000_000

_KEYWORDS = {
    name.lower(): name
    for name in (
        "problemName",
        "timeStamps",
        "missing",
        "univariate",
        "dimensions",
        "equalLength",
        "seriesLength",
        "classLabel",
        "targetLabel",
        "data",
    )
} | {"dimension": "dimensions"}
_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")
_ONE_COLUMN = {"value": pl.Float64}
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
        header, start = _header(text)
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
        if problem_name is not None and (not _encodable(name) or name.split() != [name]):
            raise DataError(f"the problem name {name!r} is not one word of latin-1", remedy="choose another")
        labels, declaration = _label_texts(data)
        write_text(path, "\n".join(_file(data, name, labels, declaration)) + "\n", ENCODING)
    except DataError as error:
        raise error.within(path) from None


# ---------------------------------------------------------------------------------------------------------- the header


@dataclass
class _Header:
    """What the header says; ``rows`` tells on which line."""

    time_stamps: bool = False
    missing: bool | None = None
    dimensions: int | None = None
    length: int | None = None
    equal_length: bool | None = None
    classes: tuple[str, ...] | None = None
    numbers_as_labels: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    data_row: int = 0

    @property
    def labelled(self) -> bool:
        return self.classes is not None or self.numbers_as_labels


def _header(text: str) -> tuple[_Header, int]:
    """What stands before the data, and where they start."""
    header = _Header()
    given: dict[str, str] = {}
    start, row = 0, 0
    while "data" not in given:
        if start >= len(text):
            raise DataError("there is no @data", remedy="the file may be cut off, or is not in the .ts format")
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line, start, row = text[start:end].strip(), end + 1, row + 1
        if line.startswith("#"):
            header.facts |= parse_facts(line[1:], row)
        elif line:
            keyword, value = _keyword(line, row)
            if keyword in given:
                raise DataError(
                    f"@{keyword} again, after line {header.rows[keyword]}", row=row, remedy="keep one of them"
                )
            given[keyword], header.rows[keyword] = value, row
    header.data_row = row
    _understand(header, given)
    return header, start


def _keyword(line: str, row: int) -> tuple[str, str]:
    if not line.startswith("@"):
        raise DataError(
            f"{shortened(line)} is no header line", row=row, remedy="put @data on a line of its own before the cases"
        )
    word, *rest = line[1:].split(maxsplit=1) or [""]
    if word.lower() not in _KEYWORDS:
        remedy = did_you_mean(word[:100], _KEYWORDS.values())
        raise DataError(f"unknown keyword {shortened('@' + word)}", row=row, remedy=remedy)
    return _KEYWORDS[word.lower()], rest[0] if rest else ""


def _understand(header: _Header, given: dict[str, str]) -> None:
    rows = header.rows

    def truth(keyword: str) -> bool | None:
        return _truth(given[keyword], keyword, rows[keyword]) if keyword in given else None

    def count(keyword: str) -> int | None:
        return _count(given[keyword], keyword, rows[keyword]) if keyword in given else None

    header.time_stamps = truth("timeStamps") or False
    header.missing, header.equal_length = truth("missing"), truth("equalLength")
    header.dimensions, header.length = count("dimensions"), count("seriesLength")
    header.numbers_as_labels = truth("targetLabel") or False
    if "classLabel" in given:
        header.classes = _classes(given["classLabel"], rows["classLabel"])
    elif "targetLabel" not in given:
        raise DataError(
            "neither @classLabel nor @targetLabel is there",
            row=header.data_row,
            remedy='add "@classLabel false" where cases have no label',
        )
    if header.classes is not None and header.numbers_as_labels:
        raise DataError("both @classLabel and @targetLabel are true", row=rows["targetLabel"], remedy="keep one")
    if truth("univariate"):
        if header.dimensions not in (None, 1):
            raise DataError(
                f"@univariate true, but @dimensions {header.dimensions}",
                row=rows["dimensions"],
                remedy="correct one of the two",
            )
        header.dimensions = 1
    if header.equal_length is False:
        header.length = None


def _truth(value: str, keyword: str, row: int) -> bool:
    if value.lower() not in ("true", "false"):
        raise DataError(f"@{keyword} is {shortened(value)}", row=row, remedy="write true or false")
    return value.lower() == "true"


def _count(value: str, keyword: str, row: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 19 and int(value) > 0):
        raise DataError(f"@{keyword} is {shortened(value)}", row=row, remedy="write a whole number from 1 on")
    return int(value)


def _classes(value: str, row: int) -> tuple[str, ...] | None:
    truth, *names = value.split() or [""]
    if not _truth(truth, "classLabel", row):
        return None
    if not names:
        raise DataError("@classLabel true names no class", row=row, remedy="list the classes after true")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"@classLabel lists {shortened(twice)} twice", row=row, remedy="list every class once")
    return tuple(names)


# ----------------------------------------------------------------------------------------------------------- the cases


def _cases(text: str, start: int, data_row: int) -> tuple[list[int], list[bytes]]:
    """Line numbers and lines that are not blank or comments."""
    lines = text[start:].encode("utf-8", "surrogatepass").split(b"\n")
    kept = [n for n, line in enumerate(lines) if not line.startswith(b"#") and line.strip()]
    if not kept:
        raise DataError("there is no case after @data", row=data_row, remedy="the file may be cut off")
    first = data_row + 1
    return [first + n for n in kept], [lines[n] for n in kept] if len(kept) < len(lines) else lines


def _at_once(lines: list[bytes], header: _Header) -> SeriesSet | None:
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


def _parse_numbers(text: bytes, count: int) -> Float64[np.ndarray, "count"] | None:
    """That many finite numbers or NaN, separated by commas; None if the text is anything else."""
    try:
        values = guarded(
            lambda: pl.read_csv(text, has_header=False, eol_char=",", separator=";", schema=_ONE_COLUMN), None
        )
    except DataError:
        return None
    column = values.to_series()
    if len(column) != count or column.null_count() or column.is_infinite().any():
        return None
    return column.to_numpy(writable=True)


def parse_cases(bodies: list[bytes]) -> tuple[Float64[np.ndarray, "n"], Int64[np.ndarray, "cases"], int] | None:
    """Numbers of all cases, dimensions separated by ``:``; None unless the dimensions of each are of one length.

    Returns:
        The values case by case and dimension by dimension; the length of each case; the number of dimensions.
    """
    text = b"\n".join(bodies)
    marks = text.translate(None, b"0123456789+-.eE")
    if b"?" in marks:
        if b"-?" in text or b"+?" in text:
            return None
        text = text.replace(b"?", b"nan")
    marks = marks.translate(None, b"?nNaA \t\r")
    if marks.translate(None, b",:\n"):
        return None
    codes = np.frombuffer(marks, np.uint8)
    ends = np.append(np.flatnonzero(codes != ord(",")), len(codes))
    lengths = np.diff(ends, prepend=-1)
    channels, over = divmod(len(lengths), len(bodies))
    if over or np.any(codes[ends[channels - 1 : -1 : channels]] != ord("\n")):
        return None
    by_case = lengths.reshape(len(bodies), channels)
    if np.any(by_case != by_case[:, :1]):
        return None
    values = _parse_numbers(text.replace(b":", b",").replace(b"\n", b","), int(lengths.sum()))
    return None if values is None else (values, by_case[:, 0], channels)


def regular_arrays(
    values: Float64[np.ndarray, "n"], lengths: Int64[np.ndarray, "cases"], channels: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Times 0, 1, ... [L] and values [L, C] of each case, from the values case by case and channel by channel."""
    cases, length = len(lengths), int(lengths[0])
    if np.all(lengths == length):
        clocks = np.tile(np.arange(length, dtype=np.float64), (cases, 1))
        return list(zip(clocks, values.reshape(cases, channels, length).transpose(0, 2, 1), strict=True))
    ends = np.cumsum(lengths)
    clock = (np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)).astype(np.float64)
    return [
        (clock[end - length : end], values[(end - length) * channels : end * channels].reshape(channels, length).T)
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]


def _one_by_one(rows: list[int], lines: list[bytes], header: _Header) -> SeriesSet:
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

    def __init__(self, header: _Header) -> None:
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
        try:
            return as_times(times)
        except OverflowError:
            raise DataError("a date is too far away for UTC", remedy="check the years") from None

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


def nearest(text: str, classes: Sequence[str]) -> str:
    """A remedy for an unknown class that takes no time to speak of, however many there are."""
    return did_you_mean(text[:100], classes) if len(classes) < 1000 else f"see the {len(classes)} classes in the header"


def plain_float(text: str) -> float:
    """A float as files have it: Python's own also takes ``1_0`` and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def number(text: str, column: str) -> float:
    """A finite number, or NaN for ``?`` and ``NaN``."""
    if text == "?":
        return np.nan
    try:
        value = plain_float(text)
    except ValueError:
        shown = f"{shortened(text)} is not a number" if text else "there is nothing between two separators"
        raise DataError(shown, column=column, remedy="write ? for a missing value") from None
    if np.isinf(value):
        raise DataError(f"{shortened(text)} is infinite", column=column, remedy="write ? for a missing value")
    return value


def merged(
    case: Int64[np.ndarray, "n"],
    channel: Int64[np.ndarray, "n"],
    times: Float64[np.ndarray, "n"],
    values: Float64[np.ndarray, "n"],
    cases: int,
    channels: int,
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Times [L] and values [L, C] of each case, from single values in any order.

    The times of a case are the union of those of its channels. Where a channel has several values at one time, its k-th
    meets the k-th of the others.
    """
    order = np.lexsort((times, channel, case))
    case, channel, times, values = case[order], channel[order], times[order], values[order]
    place = np.arange(len(times))
    nth = place - np.maximum.accumulate(np.where(_starts(case, channel, times), place, 0))
    order = np.lexsort((nth, times, case))
    case, channel, times, values, nth = case[order], channel[order], times[order], values[order], nth[order]
    first = _starts(case, times, nth)
    rows = int(first.sum())
    if rows * channels > CELLS_ALLOWED_ANYWAY + MOST_CELLS_PER_VALUE * len(values):
        raise DataError(
            f"{len(values)} values would become a table of {rows} times and {channels} channels",
            remedy="leave out channels, or cases, or bring the times of the channels together",
        )
    table = np.full((rows, channels), np.nan)
    table[np.cumsum(first) - 1, channel] = values
    stamps = times[first]
    bounds = np.searchsorted(case[first], np.arange(cases + 1)).tolist()
    return [(stamps[a:b], table[a:b]) for a, b in pairwise(bounds)]


def _starts(*keys: NDArray[Any]) -> NDArray[np.bool_]:
    """True where any of the keys differs from the one before."""
    changed = np.ones(len(keys[0]), np.bool_)
    changed[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return changed


def _assembled(
    arrays: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    labels: Sequence[Label] | None,
    header: _Header,
    notes: dict[str, int],
    missing: int,
    channels: int,
) -> SeriesSet:
    if missing:
        notes = notes | {"missing values in spite of @missing false": missing}
    return assembled(arrays, labels, header.classes, header.facts, notes, channels)


def assembled(
    arrays: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    labels: Sequence[Label] | None,
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    notes: dict[str, int],
    channels: int,
) -> SeriesSet:
    """The set, with names of channels and ids as in the facts where there are some."""
    ids = facts.get("ids", range(len(arrays)))
    schema = Schema(
        **{"channels": numbered(channels)} | {k: v for k, v in facts.items() if k in _SCHEMA}, classes=classes
    )
    for name, given, there in (("ids", len(ids), len(arrays)), ("channels", len(schema.channels), channels)):
        if given != there:
            raise DataError(
                f"the comment of contiformer has {given} {name}, the data have {there}", remedy="remove the comment"
            )
    each: Sequence[Label | None] = labels or [None] * len(arrays)
    series = [
        Series(times, values, None, label, None, None, name)
        for (times, values), label, name in zip(arrays, each, ids, strict=True)
    ]
    return SeriesSet(series, schema=schema, notes=notes)


def numbered(channels: int) -> tuple[str, ...]:
    """The names of channels that have none."""
    return tuple(f"channel_{n}" for n in range(channels))


# --------------------------------------------------------------------------------- what the formats have no place for

_SCHEMA = ("channels", "units", "dates", "time_unit")


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


# ------------------------------------------------------------------------------------------------------------- writing


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
            if not isinstance(name, str) or not _encodable(name) or not name:
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


def _encodable(text: str) -> bool:
    try:
        text.encode(ENCODING)
    except UnicodeEncodeError:
        return False
    return True


def shortened(text: str) -> str:
    """For messages."""
    return repr(text if len(text) <= 40 else f"{text[:30]}...")

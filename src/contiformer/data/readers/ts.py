"""Reader of ``.ts``, the text format of the UEA archive, as aeon and sktime use it.

A header of ``@keyword value`` lines, then ``@data``, then one case a line: dimensions separated by ``:``, values by
``,``, the label last. With ``@timeStamps true`` a value is ``(time,value)``, the time a number or an ISO datetime.

Numbers of a regular file are parsed all at once. Any other file (an empty dimension, dimensions of different length,
blanks in odd places, an error) is read again line by line, which is slower and knows the line.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from contiformer.data.conversion import as_times
from contiformer.data.errors import DataError, PathText, did_you_mean, naming_file, shortened
from contiformer.data.files import read_text
from contiformer.data.readers.columns import guarded
from contiformer.data.readers.duplicates import scatter, starts
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet, numbered

#: Start of the comment that holds what the format has no place for: channel names, units, ids. Other readers skip it.
METADATA = "contiformer "
_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")
_NAMES = ("problemName", "timeStamps", "missing", "univariate", "dimensions", "equalLength", "seriesLength")
_KEYWORDS = {name.lower(): name for name in (*_NAMES, "classLabel", "targetLabel", "data")}
_KEYWORDS["dimension"] = "dimensions"
#: Times [L] and values [L, C] of a case.
_Case = tuple[NDArray[np.float64], NDArray[np.float64]]


def read_ts(path: PathText, *, encoding: str = "latin-1") -> SeriesSet:
    """Read a ``.ts`` file, gzipped or not.

    Without time stamps the times are 0, 1, 2, ...; with them, the dimensions of a case are merged on the union of their
    times. Where a dimension has no value there is NaN, and ``notes`` counts such dimensions. Labels of classes stay the
    words they are in the file, those of ``@targetLabel`` become numbers. Ids are positions from 0.
    Anything that cannot be read without guessing is a DataError with its line.

    Example:
        >>> from pathlib import Path
        >>> from contiformer.data import read_ts
        >>> text = "@classLabel true up down\\n@data\\n1,2,?:4,5,6:up\\n3,2:7,6:down\\n"
        >>> _ = Path("waves.ts").write_text(text)
        >>> waves = read_ts("waves.ts")
        >>> waves.lengths.tolist(), waves.labels, waves[0].values[1].tolist()
        ([3, 2], ['up', 'down'], [2.0, 5.0])
    """
    with naming_file(path):
        text = read_text(path, encoding).removeprefix("ï»¿")
        header, start = read_header(text)
        rows, lines = _cases(text, start, header.rows["data"])
        read = None if header.time_stamps else _read_at_once(lines, header)
        return read or _read_line_by_line(rows, lines, header)


@dataclass
class Header:
    """The parsed header; ``rows`` holds the line of each keyword."""

    time_stamps: bool = False
    missing: bool | None = None
    dimensions: int | None = None
    length: int | None = None
    equal_length: bool | None = None
    classes: tuple[str, ...] | None = None
    numeric_labels: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    @cached_property
    def known(self) -> dict[bytes, str]:
        """The classes, by how they are written in a case."""
        return {name.encode("utf-8", "surrogatepass"): name for name in self.classes or ()}

    def split_label(self, line: bytes) -> tuple[bytes, Label | None]:
        """The values of a case, and its label."""
        if self.classes is None and not self.numeric_labels:
            return line, None
        values, colon, word = line.rpartition(b":")
        if not colon:
            raise DataError("there is no label", remedy="end the line with : and the label")
        found = self.known.get(word.strip())
        if found is not None:
            return values, found
        label = word.decode("utf-8", "surrogatepass").strip()
        kind = "a number" if self.classes is None else "the class"
        if label in ("", "?") or (self.classes is None and np.isnan(_number(label, "label"))):
            raise DataError("the label is missing", remedy=f"end the line with : and {kind}")
        if self.classes is None:
            return values, _number(label, "label")
        # the nearest of very many classes would take too long to find
        few = len(self.classes) < 1000
        near = did_you_mean(label[:100], self.classes) if few else f"see the {len(self.classes)} classes in the header"
        raise DataError(f"the label {shortened(label)} is none of the classes in @classLabel", remedy=near)


def read_header(text: str) -> tuple[Header, int]:
    """The header, and the position in the text where the cases start."""
    header, lines = Header(), io.StringIO(text)
    given: dict[str, str] = {}
    for row, line in enumerate(map(str.strip, lines), start=1):
        if line.startswith("#"):
            header.metadata |= _parse_metadata(line[1:], row)
        elif line:
            keyword, value = _keyword(line, row)
            if keyword in given:
                problem = f"@{keyword} again, after line {header.rows[keyword]}"
                raise DataError(problem, row=row, remedy="keep one of them")
            given[keyword], header.rows[keyword] = value, row
            if keyword == "data":
                _interpret(header, given)
                return header, lines.tell()
    raise DataError("there is no @data", remedy="the file may be cut off, or is not in the .ts format")


def _keyword(line: str, row: int) -> tuple[str, str]:
    if not line.startswith("@"):
        problem = f"{shortened(line)} is no header line"
        raise DataError(problem, row=row, remedy="put @data on a line of its own before the cases")
    word, *rest = line[1:].split(maxsplit=1) or [""]
    if word.lower() not in _KEYWORDS:
        remedy = did_you_mean(word[:100], _KEYWORDS.values())
        raise DataError(f"unknown keyword {shortened('@' + word)}", row=row, remedy=remedy)
    return _KEYWORDS[word.lower()], rest[0] if rest else ""


def _interpret(header: Header, given: dict[str, str]) -> None:
    rows = header.rows

    def boolean(keyword: str, value: str | None = None) -> bool | None:
        word = given.get(keyword) if value is None else value
        if word is not None and word.lower() not in ("true", "false"):
            raise DataError(f"@{keyword} is {shortened(word)}", row=rows[keyword], remedy="write true or false")
        return None if word is None else word.lower() == "true"

    def count(keyword: str) -> int | None:
        word = given.get(keyword)
        if word is None:
            return None
        if not (word.isascii() and word.isdecimal() and len(word) < 19 and int(word) > 0):
            problem = f"@{keyword} is {shortened(word)}"
            raise DataError(problem, row=rows[keyword], remedy="write a whole number from 1 on")
        return int(word)

    header.time_stamps = boolean("timeStamps") or False
    header.missing, header.equal_length = boolean("missing"), boolean("equalLength")
    header.dimensions, header.length = count("dimensions"), count("seriesLength")
    header.numeric_labels = boolean("targetLabel") or False
    if "classLabel" in given:
        labelled, *names = given["classLabel"].split() or [""]
        if boolean("classLabel", labelled):
            header.classes = _distinct(names, rows["classLabel"])
    elif "targetLabel" not in given:
        problem = "neither @classLabel nor @targetLabel is there"
        raise DataError(problem, row=rows["data"], remedy='add "@classLabel false" where cases have no label')
    if header.classes is not None and header.numeric_labels:
        raise DataError("both @classLabel and @targetLabel are true", row=rows["targetLabel"], remedy="keep one")
    if boolean("univariate"):
        if header.dimensions not in (None, 1):
            problem = f"@univariate true, but @dimensions {header.dimensions}"
            raise DataError(problem, row=rows["dimensions"], remedy="correct one of the two")
        header.dimensions = 1
    if header.equal_length is False:
        header.length = None


def _distinct(names: list[str], row: int) -> tuple[str, ...]:
    """The classes, each of them listed once."""
    if not names:
        raise DataError("@classLabel true names no class", row=row, remedy="list the classes after true")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"@classLabel lists {shortened(twice)} twice", row=row, remedy="list every class once")
    return tuple(names)


def is_metadata(found: Any) -> bool:
    """Whether this is a mapping of the known entries, each of its type."""
    try:
        known, ids = {name: found[name] for name in found if name != "ids"}, found.get("ids", [])
        Schema.from_dict(known).check_types()
    except (TypeError, AttributeError):
        return False
    right = isinstance(ids, list) and all(isinstance(name, str | int | None) for name in ids)
    return right and set(known) <= {"channels", "units", "dates", "time_unit"}


def _parse_metadata(comment: str, row: int) -> dict[str, Any]:
    """The metadata in a comment; nothing for any other comment."""
    comment = comment.strip()
    if not comment.startswith(METADATA + "{"):
        return {}
    try:
        found = json.loads(comment.removeprefix(METADATA))
    except (ValueError, RecursionError):
        found = None
    if not is_metadata(found):
        problem = "the comment of contiformer is damaged"
        raise DataError(problem, row=row, remedy="remove the comment, or write the file again")
    return {name: tuple(value) if name in ("channels", "units") else value for name, value in found.items()}


def _cases(text: str, start: int, data_row: int) -> tuple[list[int], list[bytes]]:
    """Line numbers and lines that are not blank or comments."""
    lines = text[start:].encode("utf-8", "surrogatepass").split(b"\n")
    kept = [n for n, line in enumerate(lines) if not line.startswith(b"#") and line.strip()]
    if not kept:
        raise DataError("there is no case after @data", row=data_row, remedy="the file may be cut off")
    return [data_row + 1 + n for n in kept], [lines[n] for n in kept] if len(kept) < len(lines) else lines


def _read_at_once(lines: list[bytes], header: Header) -> SeriesSet | None:
    """All cases of a regular file; None where any of it is not as regular as it looks."""
    try:
        bodies, labels = zip(*map(header.split_label, lines), strict=True)
    except DataError:
        return None
    read = _parse_regular(bodies)
    if read is None:
        return None
    values, lengths, channels = read
    wanted = header.length or (lengths[0] if header.equal_length else None)
    if header.dimensions not in (None, channels) or (wanted is not None and bool((lengths != wanted).any())):
        return None
    ends = np.cumsum(lengths)
    clock = (np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)).astype(np.float64)
    cases = [
        (clock[end - length : end], values[(end - length) * channels : end * channels].reshape(channels, length).T)
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
    return _assembled(cases, labels, header, {}, values)


def _parse_regular(bodies: Sequence[bytes]) -> tuple[NDArray[np.float64], Int64[np.ndarray, " cases"], int] | None:
    """Values (by case, then dimension), lengths and dimensions; None unless dimensions of a case have one length."""
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


def _parse_numbers(text: bytes, count: int) -> Float64[np.ndarray, " count"] | None:
    """Parse ``count`` finite numbers or NaN, separated by commas; None if the text is anything else."""
    options: dict[str, Any] = {"has_header": False, "eol_char": ",", "separator": ";", "schema": {"value": pl.Float64}}
    try:
        column = guarded(lambda: pl.read_csv(text, **options), None).to_series()
    except DataError:
        return None
    if len(column) != count or column.null_count() or column.is_infinite().any():
        return None
    return column.to_numpy(writable=True)


def _read_line_by_line(rows: list[int], lines: list[bytes], header: Header) -> SeriesSet:
    """Any file; knows the line of an error."""
    parser = _LineParser(header)
    for row, line in zip(rows, lines, strict=True):
        try:
            parser.add(line)
        except DataError as error:
            raise DataError(error.problem, row=row, column=error.column, remedy=error.remedy) from None
    return parser.finished()


class _LineParser:
    """Cases collected as single values with their case, dimension and time."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.channels = header.dimensions
        self.length = header.length
        self.labels: list[Label | None] = []
        self.counts: list[int] = []
        self.times: list[NDArray[np.float64]] = []
        self.values: list[float] = []
        self.kind: str | None = None

    def add(self, line: bytes) -> None:
        """Parse one case."""
        body, label = self.header.split_label(line)
        texts, times = self._fields(body.decode("utf-8", "surrogatepass"))
        counts = list(map(len, texts))
        self.labels.append(label)
        self.times += times
        self.values += [_number(text, f"dimension {d}") for d, values in enumerate(texts, 1) for text in values]
        self.channels = self.channels or len(counts)
        if len(counts) != self.channels:
            problem = f"{len(counts)} dimensions instead of {self.channels}"
            raise DataError(problem, remedy="check the number of colons, and that the label is there")
        if self.header.equal_length and self.length is None:
            self.length = counts[0]
        if self.length is not None and any(count != self.length for count in counts):
            bad = next(d for d, count in enumerate(counts) if count != self.length)
            problem = f"{counts[bad]} values instead of {self.length}"
            remedy = "repair the line, or say @equalLength false and leave out @seriesLength"
            raise DataError(problem, column=f"dimension {bad + 1}", remedy=remedy)
        self.counts += counts

    def _fields(self, body: str) -> tuple[list[list[str]], list[NDArray[np.float64]]]:
        """Values and times of each dimension."""
        shown = _PAIR.sub("p", body) if self.header.time_stamps else body
        texts = [[part.strip() for part in text.split(",")] if text.strip() else [] for text in shown.split(":")]
        if not self.header.time_stamps:
            return texts, [np.arange(len(values), dtype=np.float64) for values in texts]
        pairs = _PAIR.findall(body)
        odd = next((text for values in texts for text in values if text != "p"), None)
        if sum(map(len, texts)) != len(pairs) or odd is not None:
            problem = f"{shortened(body if odd is None else odd)} where (time,value) should be"
            raise DataError(problem, remedy="write (time,value),(time,value) or say @timeStamps false")
        values = iter(value.strip() for _, value in pairs)
        return [[next(values) for _ in dimension] for dimension in texts], [self._stamps([time for time, _ in pairs])]

    def _stamps(self, texts: list[str]) -> NDArray[np.float64]:
        times: list[Any]
        if not texts:
            return np.zeros(0)
        try:
            times = [_plain_float(text.strip()) for text in texts]
            kinds = ["numbers"] * len(times)
        except ValueError:
            times = [_datetime(text.strip()) for text in texts]
            kinds = ["dates without zone" if time.tzinfo is None else "dates with zone" for time in times]
        self.kind = self.kind or kinds[0]
        for text, kind in zip(texts, kinds, strict=True):
            if kind != self.kind:
                problem = f"the time {shortened(text)} is one of {kind}, those before were {self.kind}"
                raise DataError(problem, remedy="use one kind only")
        return as_times(times)

    def finished(self) -> SeriesSet:
        """All cases as a set."""
        channels = self.channels or 1
        counts = np.asarray(self.counts, np.int64)
        dimension = np.repeat(np.arange(len(counts)), counts)
        times = np.concatenate(self.times) if self.times else np.zeros(0)
        values = np.asarray(self.values, np.float64)
        cases = len(counts) // channels
        arrays = _on_union(dimension, times, values, cases, channels)
        lengths = np.fromiter((len(stamps) for stamps, _ in arrays), np.int64, cases)
        short = int((counts.reshape(cases, channels) < lengths[:, None]).sum())
        where = "at every time" if self.header.time_stamps else "up to the length"
        notes = {f"dimensions without a value {where} of their case, filled with NaN": short}
        if self.kind not in (None, "numbers"):
            self.header.metadata = {"dates": True} | self.header.metadata
        return _assembled(arrays, self.labels, self.header, notes, values)


def _on_union(
    dimension: NDArray[np.int64], times: NDArray[np.float64], values: NDArray[np.float64], cases: int, channels: int
) -> list[_Case]:
    """Cases from single values, each on the union of its channels' times.

    Where a channel has several values at one time, its k-th meets the k-th of the others.
    """
    order = np.lexsort((times, dimension))
    dimension, times, values = dimension[order], times[order], values[order]
    place = np.arange(len(times))
    nth = place - np.maximum.accumulate(np.where(starts(dimension, times), place, 0))
    order = np.lexsort((nth, times, dimension // channels))
    case, channel, times = (dimension // channels)[order], (dimension % channels)[order], times[order]
    keys = (case, times, nth[order])
    points = scatter(keys, channel, values[order], channels, "keep", lambda a, b: DataError("repeated"))
    stamps = times[points.first]
    bounds = np.searchsorted(case[points.first], np.arange(cases + 1)).tolist()
    return [(stamps[a:b], points.values[a:b]) for a, b in pairwise(bounds)]


def _assembled(
    cases: list[_Case], labels: Sequence[Label | None], header: Header, notes: dict[str, int], values: NDArray[Any]
) -> SeriesSet:
    """The set, with channel names and ids from the metadata where there are some."""
    channels = cases[0][1].shape[1]
    missing = int(np.isnan(values).sum()) if header.missing is False else 0
    notes["missing values in spite of @missing false"] = missing
    given = dict(header.metadata)
    ids = given.pop("ids", range(len(cases)))
    schema = Schema(**{"channels": numbered("channel", channels)} | given, classes=header.classes)
    for name, said, there in (("ids", len(ids), len(cases)), ("channels", len(schema.channels), channels)):
        if said != there:
            problem = f"the comment of contiformer has {said} {name}, the data have {there}"
            raise DataError(problem, remedy="remove the comment")
    series = [
        Series(times, matrix, label=label, id=name)
        for (times, matrix), label, name in zip(cases, labels, ids, strict=True)
    ]
    return SeriesSet(series, schema=schema, notes=notes)


def _datetime(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        problem = f"the time {shortened(text)} is neither a number nor an ISO datetime"
        raise DataError(problem, remedy="write 12.5 or 2024-05-01T13:45:00") from None


def _plain_float(text: str) -> float:
    """A float as files have it: Python's own also takes ``1_0`` and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _number(text: str, column: str) -> float:
    """A finite number, or NaN for ``?`` and ``NaN``."""
    if text == "?":
        return np.nan
    try:
        value = _plain_float(text)
    except ValueError:
        shown = f"{shortened(text)} is not a number" if text else "there is nothing between two separators"
        raise DataError(shown, column=column, remedy="write ? for a missing value") from None
    if np.isinf(value):
        raise DataError(f"{shortened(text)} is infinite", column=column, remedy="write ? for a missing value")
    return value

"""ARFF, the format of Weka, as the archives of time series use it.

A univariate file has one numeric attribute for each time and one row for each case. In a multivariate file a case is a
relational attribute: a quoted string with the dimensions separated by a backslash and the letter n, the values by
commas. Times are 0, 1, 2, ... in both. Shorter cases are filled up with ``?`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.archive import assembled, nearest, number, parse_cases, regular_arrays, shortened
from contiformer.data.readers.facts import (
    ENCODING,
    check_labels,
    facts_of,
    facts_text,
    has_plain_times,
    parse_facts,
    value_texts,
    writable,
)
from contiformer.data.readers.text import read_text, write_text
from contiformer.data.readers.ts import PathText
from contiformer.data.series import Label
from contiformer.data.series_set import SeriesSet

_QUOTED = r"""'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)\""""
_FIELD = re.compile(rf"\s*+(?:(?:{_QUOTED})\s*+(,|\Z)|([^,]*+)(,|\Z))")
_NAME = re.compile(rf"\s*+(?:{_QUOTED}|([^\s{{]++))")
_ESCAPED = re.compile(r"\\(.)")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
_ROW_END = b"\\n"


def read_arff(path: PathText, *, encoding: str = "latin-1", label: str | None = None) -> SeriesSet:
    r"""Read an ARFF file of series, gzipped or not.

    Points at the end of a case where every channel is missing are taken as padding, left out, and counted in ``notes``.
    Labels of a nominal attribute stay the words they are, those of a numeric one become numbers. Ids are positions
    from 0.

    Args:
        path: the file.
        encoding: of the names and labels in it.
        label: the attribute with the label; if None the nominal one, where there is one.

    Raises:
        DataError: with file, line and remedy, for anything that cannot be read without guessing.

    Example:
        >>> rows = ["@relation r", "@attribute t0 real", "@attribute t1 real", "@attribute c {a,b}", "@data", "1,2,b"]
        >>> _ = Path("r.arff").write_text("\n".join(rows))
        >>> read_arff("r.arff").labels
        ['b']
    """
    try:
        text = read_text(path, encoding).removeprefix("ï»¿")
        header = _header(text)
        layout = _layout(header, label)
        rows, lines = _rows(text, header)
        labels, values, cases, channels = _at_once(lines, layout) or _one_by_one(rows, lines, layout)
        arrays, padding = _without_padding(values, cases, channels, header.facts)
        notes = {"points at the end where nothing was observed, taken as padding": padding} if padding else {}
        return assembled(arrays, labels, layout.classes, header.facts, notes, channels)
    except DataError as error:
        raise error.within(path) from None


def write_arff(data: SeriesSet, path: PathText, *, relation: str | None = None) -> None:
    """Write a set so that :func:`read_arff` gives it back equal; gzipped when the name ends in ``.gz``.

    Names of channels, units and ids, for which the format has no place, go into a comment.

    Args:
        data: series at times 0, 1, 2, ... without static features and target series; labels are classes (words),
            numbers, or there are none.
        path: the file.
        relation: a name for the header; the file's name up to the first dot if None.

    Raises:
        DataError: for what the format cannot hold, such as other times.
    """
    try:
        name = Path(path).name.partition(".")[0] if relation is None else relation
        text = "\n".join(_file(data, name)) + "\n"
        try:
            write_text(path, text, ENCODING)
        except UnicodeEncodeError:
            raise DataError(f"the name {name!r} is not in latin-1", remedy="pass relation=") from None
    except DataError as error:
        raise error.within(path) from None


# ---------------------------------------------------------------------------------------------------------- the header


@dataclass(frozen=True)
class _Attribute:
    """One column: ``classes`` of a nominal one, the number of inner attributes (``inner``) of a relational one."""

    name: str
    kind: str
    row: int
    classes: tuple[str, ...] = ()
    inner: int = 0


@dataclass
class _Header:
    attributes: list[_Attribute] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    start: int = 0
    row: int = 0


@dataclass(frozen=True)
class _Layout:
    """Where in a row the label is (``label_at``, None if there is none) and how the rest is to be read."""

    attributes: list[_Attribute]
    label_at: int | None
    relational: bool
    length: int

    @property
    def classes(self) -> tuple[str, ...] | None:
        if self.label_at is None or self.attributes[self.label_at].kind != "nominal":
            return None
        return self.attributes[self.label_at].classes

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.classes or ())


def _header(text: str) -> _Header:
    """What stands before the data."""
    header = _Header()
    outer: tuple[str, int] | None = None
    inner = 0
    while header.start < len(text):
        end = text.find("\n", header.start)
        end = len(text) if end < 0 else end
        line, header.start, header.row = text[header.start : end].strip(), end + 1, header.row + 1
        row = header.row
        if line.startswith("%"):
            header.facts |= parse_facts(line[1:], row)
            continue
        if not line:
            continue
        keyword, _, rest = line.replace("\t", " ", 1).partition(" ")
        match keyword.lower():
            case "@relation":
                pass
            case "@attribute":
                attribute = _attribute(rest, row)
                if outer is None and attribute.kind == "relational":
                    outer, inner = (attribute.name, row), 0
                elif outer is None:
                    header.attributes.append(attribute)
                elif attribute.kind == "number":
                    inner += 1
                else:
                    raise DataError(
                        f"a {attribute.kind} attribute within a relational one",
                        row=row,
                        column=attribute.name,
                        remedy="series need numeric attributes",
                    )
            case "@end" if outer is not None:
                header.attributes.append(_Attribute(outer[0], "relational", outer[1], inner=inner))
                outer = None
            case "@data" if outer is None:
                return header
            case _:
                raise DataError(
                    f"{shortened(line)} does not belong here",
                    row=row,
                    remedy="expected are @relation, @attribute, @end after a relational attribute, and @data",
                )
    raise DataError("there is no @data", remedy="the file may be cut off, or is not in the ARFF format")


def _attribute(text: str, row: int) -> _Attribute:
    found = _NAME.match(text)
    if found is None:
        raise DataError("an attribute without name", row=row, remedy="write @attribute name type")
    name, kind = _text(found), text[found.end() :].strip()
    word = kind.split()[0].lower() if kind else ""
    if kind.startswith("{") and kind.endswith("}"):
        classes = tuple(text for text, _ in _fields(kind[1:-1], row))
        if "" in classes or len(set(classes)) < len(classes):
            raise DataError("an empty or repeated class", row=row, column=name, remedy="list every class once")
        return _Attribute(name, "nominal", row, classes)
    if word in ("numeric", "real", "integer"):
        return _Attribute(name, "number", row)
    if word == "relational":
        return _Attribute(name, "relational", row)
    raise DataError(
        f"the type {shortened(kind)} is not one that series have",
        row=row,
        column=name,
        remedy="use numeric, relational or a list of classes in braces",
    )


def _layout(header: _Header, label: str | None) -> _Layout:
    attributes = header.attributes
    names = [attribute.name for attribute in attributes]
    nominal = [n for n, attribute in enumerate(attributes) if attribute.kind == "nominal"]
    wanted = header.facts.get("label") if label is None else label
    if wanted is not None:
        if names.count(wanted) != 1:
            raise DataError(
                f"{'several attributes are' if wanted in names else 'no attribute is'} called {wanted!r}",
                row=header.row,
                remedy=did_you_mean(wanted, names),
            )
        at: int | None = names.index(wanted)
    elif len(nominal) > 1:
        listed = ", ".join(names[n] for n in nominal)
        raise DataError(f"{len(nominal)} attributes have classes: {listed}", row=header.row, remedy="pass label=")
    else:
        at = nominal[0] if nominal else None
    if at is not None and attributes[at].kind == "relational":
        raise DataError("the label is a relational attribute", row=attributes[at].row, remedy="pass another label=")
    rest = [attribute for n, attribute in enumerate(attributes) if n != at]
    relational = len(rest) == 1 and rest[0].kind == "relational"
    odd = None if relational else next((attribute for attribute in rest if attribute.kind != "number"), None)
    if odd is not None:
        raise DataError(
            f"a {odd.kind} attribute beside the label and others",
            row=odd.row,
            column=odd.name,
            remedy="a file of series has one relational attribute, or numeric ones only, and the label",
        )
    length = rest[0].inner if relational else len(rest)
    if not length:
        raise DataError("there is no numeric attribute", row=header.row, remedy="add one for each time")
    return _Layout(attributes, at, relational, length)


def _fields(line: str, row: int) -> Iterator[tuple[str, bool]]:
    """Fields between commas, and whether they were quoted; those with a backslash as they stand."""
    start, more = 0, True
    while more:
        found = _FIELD.match(line, start)
        assert found is not None, "the last alternative takes anything"
        single, double, closed, bare, ended = found.groups()
        if bare is not None and bare.startswith(("'", '"')):
            raise DataError(
                f"the quote at {shortened(bare)} is not closed", row=row, remedy="close it, or write \\' for the letter"
            )
        quoted = bare is None
        yield (_plain(single if single is not None else double), True) if quoted else (bare.strip(), False)
        start, more = found.end(), (closed if quoted else ended) == ","


def _text(found: re.Match[str]) -> str:
    single, double, bare = found.groups()
    return bare if bare is not None else _plain(single if single is not None else double)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), text) if "\\" in text else text


# ------------------------------------------------------------------------------------------------------------ the rows

_Read = tuple[list[Label] | None, Float64[np.ndarray, " n"], int, int]


def _rows(text: str, header: _Header) -> tuple[list[int], list[bytes]]:
    lines = text[header.start :].encode("utf-8", "surrogatepass").split(b"\n")
    kept = [n for n, line in enumerate(lines) if line.strip() and not line.startswith(b"%")]
    if not kept:
        raise DataError("there is no row after @data", row=header.row, remedy="the file may be cut off")
    return [header.row + 1 + n for n in kept], [lines[n].strip() for n in kept]


def _at_once(lines: list[bytes], layout: _Layout) -> _Read | None:
    """All rows of a regular file; None where any of it is not as regular as it looks."""
    labelled, classes = layout.label_at is not None, layout.classes
    if labelled and (classes is None or layout.label_at != len(layout.attributes) - 1):
        return None
    bodies, tails = lines, [b""] * len(lines)
    if layout.relational:
        parts = [line[1:].partition(line[:1]) for line in lines]
        if any(line[:1] not in (b"'", b'"') or b":" in line for line in lines):
            return None
        bodies = [part[0].replace(_ROW_END, b":") for part in parts]
        tails = [part[2].lstrip() for part in parts]
        if any(tail[:1] != b"," if labelled else tail for tail in tails):
            return None
        tails = [tail[1:] for tail in tails]
    elif labelled:
        halves = [line.rpartition(b",") for line in lines]
        bodies, tails = [half[0] for half in halves], [half[2] for half in halves]
    labels: list[Label] | None = None
    if classes is not None:
        known = {name.encode("utf-8", "surrogatepass"): name for name in classes if _PLAIN.fullmatch(name)}
        known |= {_quoted(name).encode("utf-8", "surrogatepass"): name for name in classes}
        found = [known.get(tail.strip()) for tail in tails]
        labels = [name for name in found if name is not None]
        if len(labels) < len(lines):
            return None
    read = parse_cases(bodies)
    if read is None or bool((read[1] != layout.length).any()) or not (layout.relational or read[2] == 1):
        return None
    return labels, read[0], len(lines), read[2]


def _one_by_one(rows: list[int], lines: list[bytes], layout: _Layout) -> _Read:
    """The same, line by line; knows the line of an error."""
    labels: list[Label] = []
    values: list[float] = []
    channels: int | None = None
    for row, line in zip(rows, lines, strict=True):
        try:
            label, dimensions = _case(line.decode("utf-8", "surrogatepass"), row, layout)
            channels = channels or len(dimensions)
            if len(dimensions) != channels:
                raise DataError(f"{len(dimensions)} dimensions, those before had {channels}", remedy="repair the row")
            for texts in dimensions:
                if len(texts) != layout.length:
                    raise DataError(
                        f"{len(texts)} values for {layout.length} attributes", remedy="fill up with ? or repair the row"
                    )
                values += [number(text, f"position {n}") for n, text in enumerate(texts)]
        except DataError as error:
            raise DataError(error.problem, row=row, column=error.column, remedy=error.remedy) from None
        if label is not None:
            labels.append(label)
    return labels if layout.label_at is not None else None, np.asarray(values, np.float64), len(lines), channels or 1


def _case(line: str, row: int, layout: _Layout) -> tuple[Label | None, list[list[str]]]:
    if line.startswith("{"):
        raise DataError(
            "sparse rows are not supported", remedy="save the file with all values (Weka: SparseToNonSparse)"
        )
    fields = list(_fields(line, row))
    if len(fields) != len(layout.attributes):
        raise DataError(
            f"{len(fields)} fields for {len(layout.attributes)} attributes",
            remedy="check the commas, the quotes and that the label is there",
        )
    label = None
    if layout.label_at is not None:
        text, quoted = fields.pop(layout.label_at)
        label = _label(text, quoted, layout.attributes[layout.label_at], layout.known)
    if not layout.relational:
        return label, [[text for text, _ in fields]]
    return label, [[text.strip() for text in rest.split(",")] for rest in fields[0][0].split("\n")]


def _label(text: str, quoted: bool, attribute: _Attribute, known: frozenset[str]) -> Label:
    if not quoted and text in ("", "?"):
        raise DataError("the label is missing", column=attribute.name, remedy="remove the case, or give it a label")
    if attribute.kind == "number":
        value = number(text, attribute.name)
        if np.isnan(value):
            raise DataError("the label is missing", column=attribute.name, remedy="remove the case, or give it a label")
        return value
    if text not in known:
        raise DataError(
            f"{shortened(text)} is none of the classes",
            column=attribute.name,
            remedy=nearest(text, attribute.classes),
        )
    return text


def _without_padding(
    values: Float64[np.ndarray, " n"], cases: int, channels: int, facts: dict[str, Any]
) -> tuple[list[tuple[NDArray[np.float64], NDArray[np.float64]]], int]:
    """Times and values of each case without the points at the end that have no values, and how many those were."""
    table = values.reshape(cases, channels, -1)
    length = table.shape[2]
    arrays = regular_arrays(values, np.full(cases, length), channels)
    ends = _ends(table)
    told = facts.get("lengths")
    if told is None:
        return [(times[:end], rows[:end]) for (times, rows), end in zip(arrays, ends.tolist(), strict=True)], int(
            (length - ends).sum()
        )
    if len(told) != cases or any(not end <= own <= length for own, end in zip(told, ends.tolist(), strict=True)):
        raise DataError("the comment of contiformer has lengths that do not fit the data", remedy="remove the comment")
    return [(times[:own], rows[:own]) for (times, rows), own in zip(arrays, told, strict=True)], 0


def _ends(table: Float64[np.ndarray, "cases channels points"]) -> Int64[np.ndarray, " cases"]:
    """The number of points up to the last that has a value."""
    nothing = np.isnan(table).all(axis=1)
    return table.shape[2] - np.argmin(np.pad(nothing[:, ::-1], ((0, 0), (0, 1))), axis=1)


# ------------------------------------------------------------------------------------------------------------- writing


def _file(data: SeriesSet, name: str) -> list[str]:
    data = writable(data, "an ARFF file")
    labels = check_labels(data)
    if not all(has_plain_times(series) for series in data):
        raise DataError("ARFF has no place for times other than 0, 1, 2, ...", remedy="write .ts, CSV or Parquet")
    length = int(data.lengths.max())
    if length == 0:
        raise DataError("no series has a point", remedy="an ARFF file needs one attribute for each time")
    facts = facts_of(data)
    padded = [len(series) and bool(np.isnan(series.values[-1]).all()) for series in data]
    if any(padded):
        facts["lengths"] = data.lengths.tolist()
    if labels is not None and data.classes is None:
        facts["label"] = "target"
    relational = len(data.channels) > 1
    lines = [f"%{facts_text(facts)}"] if facts else []
    lines += [f"@relation {_quoted(name)}"]
    lines += ["@attribute series relational"] if relational else []
    lines += [f"@attribute t{n} numeric" for n in range(length)]
    lines += ["@end series"] if relational else []
    if labels is not None and data.classes is None:
        lines.append("@attribute target numeric")
    elif labels is not None:
        lines.append(f"@attribute class {{{','.join(_quoted(str(each)) for each in data.classes or ())}}}")
        labels = [_quoted(label) for label in labels]
    lines.append("@data")
    for n, series in enumerate(data):
        filler = ["?"] * (length - len(series))
        body = "\\n".join(",".join(value_texts(column) + filler) for column in series.values.T.tolist())
        body = f"'{body}'" if relational else body
        lines.append(body if labels is None else f"{body},{labels[n]}")
    return lines


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    for letter, sign in (("\\", "\\"), ("'", "'"), ("\n", "n"), ("\r", "r"), ("\t", "t")):
        name = name.replace(letter, f"\\{sign}")
    return f"'{name}'"

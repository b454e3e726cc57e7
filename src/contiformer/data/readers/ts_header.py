"""The header of a ``.ts`` file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.archive import (
    shortened,
)
from contiformer.data.readers.facts import (
    parse_facts,
)

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


@dataclass
class Header:
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
        """Whether cases end in a label."""
        return self.classes is not None or self.numbers_as_labels


def read_header(text: str) -> tuple[Header, int]:
    """What stands before the data, and where they start."""
    header = Header()
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


def _understand(header: Header, given: dict[str, str]) -> None:
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

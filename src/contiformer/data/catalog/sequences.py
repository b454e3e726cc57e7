"""Event sequences as they lie on disk: JSON, one object per sequence, with what says to which part it belongs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contiformer.data.errors import DataError
from contiformer.data.events import MOST_TYPES, EventSequence
from contiformer.data.readers.text import read_text

Record = dict[str, Any]
#: Our names first, then those of the EasyTPP files.
_NAMES = {"times": "time_since_start", "types": "type_event", "num_types": "dim_process", "id": "seq_idx"}


def read_records(path: Path) -> list[Record]:
    """The objects of a file with one of them per line, or with one list of them.

    Raises:
        DataError: with the row of a line that is not such an object.
    """
    text = read_text(path)
    if text.lstrip().startswith("["):
        found = _parsed(text, path, None)
        rows = found if isinstance(found, list) else [found]
    else:
        rows = [_parsed(line, path, row) for row, line in enumerate(text.splitlines(), 1) if line.strip()]
    for row, record in enumerate(rows, 1):
        if not isinstance(record, dict):
            raise DataError("this is no JSON object", file=path, row=row, remedy="one sequence is one {...}")
    return rows


def as_sequence(record: Mapping[str, Any], path: Path, row: int) -> EventSequence:
    """Times, types and, where there is one, the id."""
    for name in ("times", "types"):
        if name not in record and _NAMES[name] not in record:
            raise DataError(f"there are no {name}", file=path, row=row, column=name, remedy="each sequence needs them")
    times, types, name = (record.get(key, record.get(_NAMES[key])) for key in ("times", "types", "id"))
    if name is not None and not isinstance(name, str | int):
        raise DataError("the id is neither a word nor a number", file=path, row=row, column="id")
    try:
        return EventSequence.of(times, types, id=name)
    except DataError as error:
        raise DataError(error.problem, file=path, row=row, remedy=error.remedy) from None
    except (TypeError, ValueError, OverflowError):
        raise DataError("times or types are no flat list of numbers", file=path, row=row, column="times") from None


def number_of_types(records: list[Record], path: Path) -> int:
    """What the records say, which has to be the same for all of them."""
    said = [record.get("num_types", record.get(_NAMES["num_types"])) for record in records]
    number = said[0]
    if type(number) is not int or not 1 <= number <= MOST_TYPES or any(other != number for other in said):
        row = next((row for row, other in enumerate(said, 1) if other != number), 1)
        raise DataError(
            "the sequences do not agree on the number of types",
            file=path,
            row=row,
            column="num_types",
            remedy=f"give the same whole number from 1 to {MOST_TYPES:,} in each",
        )
    return number


def _parsed(text: str, path: Path, row: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"this is no JSON ({error})", file=path, row=row, remedy="repair or download it again"
        ) from None

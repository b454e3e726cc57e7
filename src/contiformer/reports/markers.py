"""Tables in documents that are written by a command, between two comments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from contiformer.data.errors import did_you_mean

_BEGIN, _END = re.compile(r"<!-- table: (?P<name>[^\s>]+) -->"), "<!-- end -->"


def fill_markers(text: str, tables: Mapping[str, str]) -> str:
    """Put each table between its comments, whatever stood there before.

    Raises:
        ValueError: there is no table of this name, or a comment that ends it is missing.

    Example:
        >>> print(fill_markers("Ours: <!-- table: a -->old<!-- end -->", {"a": "| 1 |"}))
        Ours: <!-- table: a -->
        <BLANKLINE>
        | 1 |
        <BLANKLINE>
        <!-- end -->
    """
    done, rest = "", text
    while found := _BEGIN.search(rest):
        name = found["name"]
        if name not in tables:
            raise ValueError(f"there is no table {name!r} for {found[0]}; {did_you_mean(name, tables)}")
        before, after = rest[: found.end()], rest[found.end() :]
        old, end, rest = after.partition(_END)
        if not end or _BEGIN.search(old):
            raise ValueError(f"{found[0]} has no {_END} before the next one; put it where the table ends")
        done += f"{before}\n\n{tables[name]}\n\n{_END}"
    return done + rest

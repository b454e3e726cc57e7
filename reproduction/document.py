"""Documents: tables for the terminal, pages as Markdown, and tables filled into Markdown files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from rich import box
from rich.markup import escape as rich_escape
from rich.table import Table

from contiformer.data import did_you_mean
from contiformer.plots import Bars, Block, Entry, Findings, Fold, Heading, Picture, Sheet, Words

#: Characters between columns in a terminal.
_PADDING = 3


def split_sheet(sheet: Sheet, width: int) -> list[Sheet]:
    """Sheets that fit the width of a screen, with the same names at the left, one below the other."""
    widths = [
        max(len(part) for text in (head, *(line[number].text for line in sheet.lines)) for part in text.split("\n"))
        + _PADDING
        for number, head in enumerate(sheet.columns)
    ]
    groups: list[list[int]] = [[]]
    room = width - sum(widths[: sheet.names])
    for number in range(sheet.names, len(sheet.columns)):
        if groups[-1] and sum(widths[n] for n in groups[-1]) + widths[number] > room:
            groups.append([])
        groups[-1].append(number)
    return [_only(sheet, [*range(sheet.names), *group]) for group in groups]


def _only(sheet: Sheet, numbers: Sequence[int]) -> Sheet:
    lines = tuple(tuple(line[n] for n in numbers) for line in sheet.lines)
    words = sum(not sheet.is_number(n) for n in numbers[sheet.names :])
    return replace(sheet, columns=tuple(sheet.columns[n] for n in numbers), lines=lines, words=words)


def sheet_to_rich(sheet: Sheet) -> Table:
    """A table for the terminal, without title and notes, which may be wider than the table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, head in enumerate(sheet.columns):
        table.add_column(rich_escape(head), justify="right" if sheet.is_number(number) else "left", overflow="fold")
    for line in sheet.lines:
        table.add_row(*map(_in_rich, line))
    return table


def _in_rich(entry: Entry) -> str:
    text = rich_escape(entry.text)
    first, *rest = text.split("\n")
    if entry.faint:
        return f"[dim]{text}[/dim]"
    shown = f"[bold]{first}[/bold]" if entry.strong else first
    return "\n".join([shown, *(f"[dim]{line}[/dim]" for line in rest)])


def sheet_to_markdown(sheet: Sheet) -> str:
    """A table as Markdown."""
    ruler = ["---:" if sheet.is_number(number) else "---" for number in range(len(sheet.columns))]
    lines = [sheet.columns, ruler, *([_in_markdown(entry) for entry in line] for line in sheet.lines)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([f"**{sheet.title}**", body, *sheet.notes])


def _in_markdown(entry: Entry) -> str:
    first, *rest = entry.text.replace("|", "\\|").split("\n")
    return "<br>".join([f"**{first}**" if entry.strong else first, *rest])


def page_to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """A page as Markdown, pictures linked relative to the folder of the page."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _markdown(block: Block, folder: Path) -> str:  # noqa: PLR0911
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Words(text, link, link_text):
            return text + (f" [{link_text}]({link})" if link else "")
        case Findings(sentences):
            return "\n".join(f"- {sentence}" for sentence in sentences)
        case Picture(path, caption):
            return f"![{caption}]({Path(os.path.relpath(path, folder)).as_posix()})\n\n{caption}"
        case Fold(summary, inner):
            body = "\n\n".join(_markdown(one, folder) for one in inner)
            return f"<details><summary>{escape(summary)}</summary>\n\n{body}\n\n</details>"
        case Bars(title, _, rows):
            lines = tuple((Entry(name), Entry(text)) for name, _, text in rows)
            return sheet_to_markdown(Sheet(title, ("", ""), lines))
        case Sheet():
            return sheet_to_markdown(block)
    raise TypeError(f"no Markdown for {type(block).__name__}")


_BEGIN, _END = re.compile(r"<!-- table: (?P<name>[^\s>]+) -->"), "<!-- end -->"


def fill_markers(text: str, tables: Mapping[str, str]) -> str:
    """Replace the text between the comments of each table by the table.

    Raises:
        ValueError: there is no table of this name, or a comment that ends it is missing.

    Example:
        >>> from reproduction.document import fill_markers
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

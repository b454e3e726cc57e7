"""Documents: tables and pages for the terminal, as Markdown and as HTML, and tables filled into Markdown files."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from rich import box
from rich.markup import escape as rich_escape
from rich.table import Table

from contiformer.data import did_you_mean


@dataclass(frozen=True)
class Entry:
    """One field of a table, of one or several lines.

    Attributes:
        text: its lines.
        strong: shown in bold, for the best of its row.
        faint: shown in grey, for a missing number.
    """

    text: str
    strong: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with its title and notes.

    Attributes:
        title: what it shows.
        columns: their heads.
        lines: the fields, as many in each as there are heads.
        names: how many columns at the left are names; numbers follow.
        words: how many columns at the right are words.
        notes: sentences below.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    names: int = 1
    words: int = 0
    notes: tuple[str, ...] = ()

    def split(self, width: int) -> list[Sheet]:
        """Sheets that fit the width of a screen, with the same names at the left, one below the other."""
        widths = [
            max(len(part) for text in (head, *(line[number].text for line in self.lines)) for part in text.split("\n"))
            + _PADDING
            for number, head in enumerate(self.columns)
        ]
        groups: list[list[int]] = [[]]
        room = width - sum(widths[: self.names])
        for number in range(self.names, len(self.columns)):
            if groups[-1] and sum(widths[n] for n in groups[-1]) + widths[number] > room:
                groups.append([])
            groups[-1].append(number)
        return [self._only([*range(self.names), *group]) for group in groups]

    def _only(self, numbers: Sequence[int]) -> Sheet:
        lines = tuple(tuple(line[n] for n in numbers) for line in self.lines)
        columns = tuple(self.columns[n] for n in numbers)
        words = sum(not self.is_number(n) for n in numbers[self.names :])
        return replace(self, columns=columns, lines=lines, words=words)

    def is_number(self, column: int) -> bool:
        """Whether there are numbers in a column."""
        return self.names <= column < len(self.columns) - self.words


#: Characters between columns in a terminal.
_PADDING = 3


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


def sheet_to_html(sheet: Sheet) -> str:
    """A table as HTML."""
    heads = "".join(f"<th{_side(number, sheet)}>{escape(head)}</th>" for number, head in enumerate(sheet.columns))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_side(number, sheet)}>{_in_html(entry)}</td>" for number, entry in enumerate(line))
        + "</tr>"
        for line in sheet.lines
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in sheet.notes)
    title = f"<caption>{escape(sheet.title)}</caption>"
    table = f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="sheet">{table}</div>{notes}'


def _side(number: int, sheet: Sheet) -> str:
    return "" if sheet.is_number(number) else ' class="name"'


def _in_html(entry: Entry) -> str:
    first, *rest = escape(entry.text).split("\n")
    shown = f"<b>{first}</b>" if entry.strong else f"<i>{first}</i>" if entry.faint else first
    return "<br>".join([shown, *(f"<small>{line}</small>" for line in rest)])


@dataclass(frozen=True)
class Heading:
    """A heading of the page (1), of a section (2) or below (3)."""

    level: int
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph, with a link at its end if there is one."""

    text: str
    link: str | None = None
    link_text: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG with its caption."""

    path: Path
    caption: str


Block = Heading | Words | Picture | Sheet

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
a { color: #0072b2; } nav a { margin-right: 1rem; white-space: nowrap; }
.sheet { overflow-x: auto; margin: 1.5rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; white-space: nowrap; }
code { font-size: 13px; background: #f2f2f2; padding: .1rem .3rem; }
th, td { padding: .3rem .6rem; text-align: right; vertical-align: top; white-space: nowrap; }
th { border-bottom: 2px solid #888; } td { border-bottom: 1px solid #e4e4e4; }
.name { text-align: left; } small, i, .note, figcaption { color: #666; }
.note, figcaption { font-size: 13px; } figure { margin: 1.5rem 0; } img { max-width: 100%; }
"""


def page_to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """A page as Markdown, pictures linked relative to the folder of the page."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _markdown(block: Block, folder: Path) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Words):
        return block.text + (f" [{block.link_text}]({block.link})" if block.link else "")
    if isinstance(block, Picture):
        return f"![{block.caption}]({Path(os.path.relpath(block.path, folder)).as_posix()})\n\n{block.caption}"
    return sheet_to_markdown(block)


def page_to_html(blocks: Sequence[Block]) -> str:
    """A page as one HTML file, pictures included."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    links = [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]
    nav = "".join(f'<a href="#{_anchor(text)}">{escape(text)}</a> ' for text in links)
    body = "\n".join(
        _html(block) + (f"\n<nav>{nav}</nav>" if number == 0 else "") for number, block in enumerate(blocks)
    )
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>\n<style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}{view}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f'<h{block.level} id="{_anchor(block.text)}">{escape(block.text)}</h{block.level}>'
    if isinstance(block, Words):
        link = f' <a href="{escape(block.link)}">{escape(block.link_text)}</a>' if block.link else ""
        return f"<p>{_with_code(block.text)}{link}</p>"
    if isinstance(block, Picture):
        data, caption = b64encode(block.path.read_bytes()).decode(), escape(block.caption)
        image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    return sheet_to_html(block)


def _with_code(text: str) -> str:
    """Text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


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

"""A table for readers: in the terminal, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from rich import box
from rich.markup import escape as rich_escape
from rich.table import Table


@dataclass(frozen=True)
class Entry:
    """What stands in one field, in several lines if need be.

    Attributes:
        text: its lines.
        strong: the best of its row.
        faint: there is no number.
    """

    text: str
    strong: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with what has to be said about it.

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
        """Side by side too wide for a screen: several sheets with the same names at the left, one above the other."""
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


#: What the terminal puts between columns.
_PADDING = 3


def to_rich(sheet: Sheet) -> Table:
    """For a terminal, without title and notes, which may be wider than the table."""
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


def to_markdown(sheet: Sheet) -> str:
    """For GitHub and for pages made of Markdown."""
    ruler = ["---:" if sheet.is_number(number) else "---" for number in range(len(sheet.columns))]
    lines = [sheet.columns, ruler, *([_in_markdown(entry) for entry in line] for line in sheet.lines)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([f"**{sheet.title}**", body, *sheet.notes])


def _in_markdown(entry: Entry) -> str:
    first, *rest = entry.text.replace("|", "\\|").split("\n")
    return "<br>".join([f"**{first}**" if entry.strong else first, *rest])


def to_html(sheet: Sheet) -> str:
    """For a page."""
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

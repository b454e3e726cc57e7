"""Reports as one HTML file: findings, sortable tables, pictures and folded parts, without anything from elsewhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One field of a table, of one or several lines.

    Attributes:
        text: its lines.
        strong: shown in bold, for the best of its row.
        faint: shown in grey, for a missing number.

    Example:
        >>> from contiformer.plots import Entry, Sheet, sheet_to_html
        >>> best = Entry("0.91", strong=True)
        >>> "<b>0.91</b>" in sheet_to_html(Sheet("Accuracy", ("model", "mean"), ((Entry("S5"), best),)))
        True
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

    Example:
        >>> from contiformer.plots import Entry, Sheet
        >>> sheet = Sheet("Accuracy", ("model", "mean"), ((Entry("S5"), Entry("0.91")),), notes=("Five seeds.",))
        >>> [sheet.is_number(column) for column in range(2)]
        [False, True]
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    names: int = 1
    words: int = 0
    notes: tuple[str, ...] = ()

    def is_number(self, column: int) -> bool:
        """Whether there are numbers in a column."""
        return self.names <= column < len(self.columns) - self.words


@dataclass(frozen=True)
class Heading:
    """A heading of the page (1), of a section (2) or below (3).

    Example:
        >>> from contiformer.plots import Heading, page_to_html
        >>> '<h2 id="next-steps">' in page_to_html([Heading(2, "Next steps")])
        True
    """

    level: int
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph, with a link at its end if there is one; text between backticks is code.

    Example:
        >>> from contiformer.plots import Words, page_to_html
        >>> "<code>make test</code>" in page_to_html([Words("Run `make test`.")])
        True
    """

    text: str
    link: str | None = None
    link_text: str = ""


@dataclass(frozen=True)
class Findings:
    """Findings, one sentence each; the words before a colon are bold.

    Example:
        >>> from contiformer.plots import Findings, page_to_html
        >>> "<b>Speed:</b> twice as fast." in page_to_html([Findings(("Speed: twice as fast.",))])
        True
    """

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Headline figures: for each its name, the figure, and its interval or unit.

    Example:
        >>> from contiformer.plots import Figures, page_to_html
        >>> "<b>0.87</b>" in page_to_html([Figures((("AUROC", "0.87", "0.85 to 0.89"),))])
        True
    """

    entries: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: for each its name, its length and its text; ``strong`` is the name of one that stands out.

    Example:
        >>> from contiformer.plots import Bars, page_to_html
        >>> "width:50.0%" in page_to_html([Bars("Speed", "ours", (("ours", 2.0, "2 s"), ("theirs", 1.0, "1 s")))])
        True
    """

    title: str
    strong: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Picture:
    """A PNG or SVG file with its caption.

    Example:
        >>> from pathlib import Path
        >>> from contiformer.plots import Picture, new_figure, page_to_html, save
        >>> picture = Picture(save(new_figure(2, 1), Path("empty.png")), "An empty figure")
        >>> "data:image/png;base64," in page_to_html([picture])
        True
    """

    path: Path
    caption: str


@dataclass(frozen=True)
class Fold:
    """Blocks that are folded until a reader asks for them.

    Example:
        >>> from contiformer.plots import Fold, Words, page_to_html
        >>> "<summary>Details</summary>" in page_to_html([Fold("Details", (Words("All seeds."),))])
        True
    """

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Words | Findings | Figures | Bars | Picture | Sheet | Fold


def page_to_html(blocks: Sequence[Block]) -> str:
    """A page as one HTML file, pictures included; it asks for nothing else, in light and dark, on screen and paper.

    Example:
        >>> from contiformer.plots import Entry, Heading, Sheet, page_to_html
        >>> page = page_to_html([Heading(1, "a < b"), Sheet("t", ("x", "y"), ((Entry("p"), Entry("1")),))])
        >>> "<h1 id=\\"a-b\\">a &lt; b</h1>" in page, "http" in page
        (True, False)
    """
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    links = [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]
    nav = "".join(f'<a href="#{_anchor(text)}">{escape(text)}</a> ' for text in links)
    first, rest = blocks[:1], blocks[1:]
    body = "\n".join([*map(block_to_html, first), f"<nav>{nav}</nav>" if nav else "", _in_rows(rest)])
    here = Path(__file__)
    style, script = (here.with_name(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>\n<style>{style}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = f"<body>\n{body}\n<script>{script}</script>\n</body>"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}{view}</head>\n{body}\n</html>\n'


def _in_rows(blocks: Sequence[Block]) -> str:
    """The blocks, with pictures that follow one another side by side."""
    parts: list[str] = []
    row: list[str] = []
    for block in [*blocks, None]:
        if isinstance(block, Picture):
            row.append(block_to_html(block))
            continue
        if row:
            parts.append(f'<div class="row">{"".join(row)}</div>' if len(row) > 1 else row[0])
            row = []
        if block is not None:
            parts.append(block_to_html(block))
    return "\n".join(parts)


def block_to_html(block: Block) -> str:  # noqa: PLR0911
    """One block as HTML."""
    match block:
        case Heading(level, text):
            return f'<h{level} id="{_anchor(text)}">{escape(text)}</h{level}>'
        case Words(text, link, link_text):
            end = f' <a href="{escape(link)}">{escape(link_text)}</a>' if link else ""
            return f"<p>{_with_code(text)}{end}</p>"
        case Findings(sentences):
            items = (re.sub(r"^([^:]{1,60}):", r"<b>\1:</b>", _with_code(text)) for text in sentences)
            return f'<ul class="findings">{"".join(f"<li>{item}</li>" for item in items)}</ul>'
        case Figures(entries):
            tiles = (f"<div>{escape(a)}<b>{escape(b)}</b><span>{escape(c)}</span></div>" for a, b, c in entries)
            return f'<div class="figures">{"".join(tiles)}</div>'
        case Bars(title, strong, rows):
            largest = max((size for _, size, _ in rows), default=0.0) or 1.0
            lines = (
                f"<span{own}>{escape(name)}</span>"
                f'<div><div{own} style="width:{100 * size / largest:.1f}%"></div></div><span>{escape(text)}</span>'
                for name, size, text in rows
                for own in [' class="own"' if name == strong else ""]
            )
            return f'<p class="title">{escape(title)}</p><div class="bars">{"".join(lines)}</div>'
        case Picture(path, caption):
            return f"<figure>{_image(path, caption)}<figcaption>{escape(caption)}</figcaption></figure>"
        case Fold(summary, inner):
            return f"<details><summary>{escape(summary)}</summary>\n{_in_rows(inner)}\n</details>"
        case Sheet():
            return sheet_to_html(block)


def sheet_to_html(sheet: Sheet) -> str:
    """A table in a box of its own that scrolls where the page is narrower; a click on a head sorts by its column."""
    heads = "".join(f"<th{_side(number, sheet)}>{escape(head)}</th>" for number, head in enumerate(sheet.columns))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_side(number, sheet)}>{_in_html(entry)}</td>" for number, entry in enumerate(line))
        + "</tr>"
        for line in sheet.lines
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in sheet.notes)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<p class="title">{escape(sheet.title)}</p><div class="sheet" tabindex="0">{table}</div>{notes}'


def _side(number: int, sheet: Sheet) -> str:
    if sheet.is_number(number):
        return ""
    return ' class="name"' if number < sheet.names else ' class="name words"'


def _in_html(entry: Entry) -> str:
    first, *rest = escape(entry.text).split("\n")
    shown = f"<b>{first}</b>" if entry.strong else f"<i>{first}</i>" if entry.faint else first
    return "<br>".join([shown, *(f"<small>{line}</small>" for line in rest)])


def _image(path: Path, caption: str) -> str:
    if path.suffix == ".svg":
        drawn = path.read_text(encoding="utf-8")
        # a page of HTML knows these namespaces
        bare = re.sub(r"<metadata>.*?</metadata>|\sxmlns(:\w+)?=\"[^\"]*\"", "", drawn, flags=re.DOTALL)
        return bare[bare.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    data = b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'


def _with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

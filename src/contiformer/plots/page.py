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

    def is_number(self, column: int) -> bool:
        """Whether there are numbers in a column."""
        return self.names <= column < len(self.columns) - self.words


@dataclass(frozen=True)
class Heading:
    """A heading of the page (1), of a section (2) or below (3)."""

    level: int
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph, with a link at its end if there is one; text between backticks is code."""

    text: str
    link: str | None = None
    link_text: str = ""


@dataclass(frozen=True)
class Findings:
    """Findings, one sentence each; the words before a colon are bold."""

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Headline figures: for each its name, the figure, and its interval or unit."""

    entries: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: for each its name, its length and its text; ``strong`` is the name of one that stands out."""

    title: str
    strong: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Picture:
    """A PNG or SVG file with its caption."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Fold:
    """Blocks that are folded until a reader asks for them."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Words | Findings | Figures | Bars | Picture | Sheet | Fold

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2125; --soft: #5f6b76; --line: #d9dee3; --back: #fff; --card: #f5f7f9;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --soft: #9aa7b3; --line: #38424b; --back: #14181c;
  --card: #1d2329; --accent: #63b3e8; } }
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 84rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.6rem; border-top: 1px solid var(--line); padding-top: 1.2rem; }
a { color: var(--accent); } nav { margin: .8rem 0; } nav a { margin-right: 1rem; display: inline-block; }
p, .findings { max-width: 60rem; } .findings li { margin: .3rem 0; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.figures div { background: var(--card); border-radius: .5rem; padding: .7rem 1rem; min-width: 9rem; }
.figures b { display: block; font-size: 1.7rem; line-height: 1.25; } .figures span { color: var(--soft); }
.bars { display: grid; grid-template-columns: max-content minmax(4rem, 28rem) max-content; gap: .25rem .7rem;
  align-items: center; font-size: 13px; margin-bottom: 1.2rem; }
.bars > span { overflow: hidden; text-overflow: ellipsis; max-width: 16rem; }
.bars > div > div { background: var(--soft); height: .8rem; border-radius: .2rem; min-width: 2px; }
.bars > div > div.own { background: var(--accent); } span.own { font-weight: 700; }
.title { font-weight: 600; margin: 1.4rem 0 .3rem; }
.sheet { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; max-width: 100%; width: fit-content; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .3rem .6rem; text-align: right; vertical-align: top; white-space: nowrap; }
th { border-bottom: 2px solid var(--line); cursor: pointer; user-select: none; background: var(--card); }
td { border-bottom: 1px solid var(--line); } tbody tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--card); }
th[aria-sort=ascending]::after { content: " \\25B2"; } th[aria-sort=descending]::after { content: " \\25BC"; }
.name { text-align: left; } .words { text-align: left; white-space: normal; min-width: 14rem; }
small, i, .note, figcaption { color: var(--soft); } .note, figcaption { font-size: 13px; }
figure { margin: 1.2rem 0; } img { max-width: 100%; background: #fff; border-radius: .4rem; }
figure svg text { fill: currentColor; } figure svg { max-width: 100%; height: auto; display: block; }
.row { display: flex; flex-wrap: wrap; gap: 1.5rem; }
.row figure { margin: .4rem 0; max-width: 100%; }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .8rem 0; padding: .5rem .9rem; }
summary { cursor: pointer; font-weight: 600; } code { font-size: 13px; background: var(--card); padding: .1rem .3rem; }
@media (max-width: 40rem) { th:first-child, td:first-child { max-width: 9rem; white-space: normal; }
  .bars > span { max-width: 7rem; } figure { overflow-x: auto; } figure svg, figure img { max-width: 40rem; } }
@page { size: landscape; margin: 1cm; }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --card: #fff;
  --accent: #0072b2; } body { max-width: none; margin: 0; font-size: 11px; }
  nav { display: none; } .sheet { overflow: visible; border: 0; } table { font-size: 8px; }
  th, td { padding: .1rem .2rem; white-space: normal; } .words { min-width: 6rem; } .bars { font-size: 10px; }
  figure, tr { break-inside: avoid; } h2, h3, .title { break-after: avoid; } }
"""

_SCRIPT = """
function value(row, n) { return (row.cells[n].dataset.value || row.cells[n].innerText).trim(); }
function number(text) { const found = text.replace(/[,\\u2009]/g, "").match(/^[-+\\u2212]?\\d*\\.?\\d+(e[-+]?\\d+)?/i);
  return found ? parseFloat(found[0].replace("\\u2212", "-")) : NaN; }
function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], n = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  const keyed = [...body.rows].map(row => [number(value(row, n)), value(row, n), row]);
  const numeric = keyed.some(one => !isNaN(one[0])) && !head.classList.contains("name");
  keyed.sort((a, b) => {
    if (!numeric) return (up ? 1 : -1) * a[1].localeCompare(b[1], undefined, {numeric: true});
    if (isNaN(a[0]) || isNaN(b[0])) return isNaN(a[0]) - isNaN(b[0]);
    return up ? a[0] - b[0] : b[0] - a[0]; });
  table.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  keyed.forEach(one => body.appendChild(one[2])); }
document.querySelectorAll("th").forEach(head => { head.tabIndex = 0;
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(head); }); });
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
"""


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
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>\n<style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    script = f"<script>{_SCRIPT}</script>"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}{view}</head>\n<body>\n{body}\n{script}\n</body>\n</html>\n'


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

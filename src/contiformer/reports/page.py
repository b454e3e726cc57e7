"""One page as Markdown and as HTML: headings, sentences, tables and pictures."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from contiformer.reports import sheet as sheets
from contiformer.reports.sheet import Sheet


@dataclass(frozen=True)
class Heading:
    """Of the page (1), of a section (2) or below (3)."""

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
    """A PNG and what it shows."""

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


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Pictures are linked relative to the folder that the page lies in."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _markdown(block: Block, folder: Path) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Words):
        return block.text + (f" [{block.link_text}]({block.link})" if block.link else "")
    if isinstance(block, Picture):
        return f"![{block.caption}]({Path(os.path.relpath(block.path, folder)).as_posix()})\n\n{block.caption}"
    return sheets.to_markdown(block)


def to_html(blocks: Sequence[Block]) -> str:
    """All in one file, pictures too."""
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
    return sheets.to_html(block)


def _with_code(text: str) -> str:
    """What stands between backticks is code, as in Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

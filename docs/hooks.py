"""Hooks of the documentation's build: formulas become MathML, which browsers draw without a script."""

import re
from html import unescape

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def _mathml(match: re.Match[str]) -> str:
    return convert(unescape(match[3]).strip(), display="inline" if match[2] == "(" else "block")


def on_page_content(html: str, **_: object) -> str:
    """Replace LaTeX by MathML."""
    return _FORMULA.sub(_mathml, html)

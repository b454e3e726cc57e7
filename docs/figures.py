"""Figures of executed pages."""

import io
import re
from html import escape


def show(figure: object, caption: str = "") -> str:
    """HTML of a matplotlib figure, for a page to print."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")  # type: ignore[attr-defined]
    named = f'<svg role="img" aria-label="{escape(caption)}"'
    svg = re.sub(r"^.*?<svg", lambda _: named, buffer.getvalue(), count=1, flags=re.DOTALL)
    return f'<figure class="run" markdown="0">{svg}<figcaption>{caption}</figcaption></figure>'

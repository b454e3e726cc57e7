"""Figures of executed pages."""

import io
import re


def show(figure: object, caption: str = "") -> str:
    """HTML of a matplotlib figure, for a page to print."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")  # type: ignore[attr-defined]
    svg = re.sub(r"^.*?<svg", "<svg", buffer.getvalue(), flags=re.DOTALL)
    return f'<figure class="run" markdown="0">{svg}<figcaption>{caption}</figcaption></figure>'

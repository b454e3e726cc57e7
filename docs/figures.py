"""Figures of executed pages."""

import io
import re


def show(figure: object, caption: str = "") -> None:
    """Print a matplotlib figure as HTML for a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")  # type: ignore[attr-defined]
    svg = re.sub(r"^.*?<svg", "<svg", buffer.getvalue(), flags=re.DOTALL)
    print(f'<figure class="run" markdown="0">{svg}<figcaption>{caption}</figcaption></figure>')

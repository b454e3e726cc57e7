"""Docstrings as the site shows them: roles become code, and a single example is a section of examples."""

import re

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Rewrite docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Replace roles, and headings that the parser does not know."""
        if obj.docstring:
            text = _ROLE.sub(lambda match: f"`{match[1].rsplit('.', 1)[-1]}`", obj.docstring.value)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE).replace("``", "`")

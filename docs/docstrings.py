"""Docstrings as the site shows them: roles become code, and a single example is a section of examples."""

import re

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
#: Several parameters with one description: "first, second: ...".
_GROUP = re.compile(r"^( +)(\w+(?:, \w+)+)(?=: )", re.MULTILINE)


def plain(text: str) -> str:
    """Markdown of a docstring's text: roles and double backticks become code."""
    return _ROLE.sub(lambda match: f"`{match[1].rsplit('.', 1)[-1]}`", text).replace("``", "`")


class Docstrings(griffe.Extension):
    """Rewrite docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Replace roles, and headings and names that the parser does not know."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", plain(obj.docstring.value), flags=re.MULTILINE)
            text = text.replace("(all others):", "other\N{THIN SPACE}parameters:")
            # the parser takes what follows an ordinary space for a type
            obj.docstring.value = _GROUP.sub(lambda match: match[1] + match[2].replace(", ", ",\N{THIN SPACE}"), text)

"""Docstrings as the site shows them: roles become code, and a single example is a section of examples."""

import re

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
#: Several parameters with one description: "first, second: ...".
_GROUP = re.compile(r"^( +)(\w+), ([\w, ]+)(: .*(?:\n\1 +.*)*)", re.MULTILINE)


def plain(text: str) -> str:
    """Markdown of a docstring's text: roles and double backticks become code."""
    return _ROLE.sub(lambda match: f"`{match[1].rsplit('.', 1)[-1]}`", text).replace("``", "`")


class Docstrings(griffe.Extension):
    """Rewrite docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Replace roles, and headings and names that the parser does not know."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", plain(obj.docstring.value), flags=re.MULTILINE)
            # the parser takes what follows an ordinary space for a type
            text = text.replace("(all others):", "other\N{THIN SPACE}parameters (Any):")
            obj.docstring.value = _GROUP.sub(_apart, text)


def _apart(match: re.Match[str]) -> str:
    """A line for each name of a group: the parser finds their types one by one."""
    indent, first, others, meaning = match.groups()
    return f"{indent}{first}{meaning}" + "".join(f"\n{indent}{name}: see `{first}`." for name in others.split(", "))

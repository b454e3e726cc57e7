"""The parameters of an estimator from a YAML file and from ``--set``, checked one by one."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import typer

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.text import read_text

if TYPE_CHECKING:
    from contiformer.estimators import Estimator

#: Given by options of the command line, and not part of a configuration.
_OPTION_FOR = {"run_dir": "--output"}
_WORDS = {int: "a whole number", float: "a number", str: "a word", dict: "a mapping", type(None): "null"}


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file; of the ``config.json`` of a run its parameters."""
    import yaml  # noqa: PLC0415

    try:
        content = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "it cannot be understood"
        row = None if mark is None else mark.line + 1
        raise DataError(
            f"this is no YAML ({what})", file=path, row=row, remedy="write lines like 'd_model: 32'"
        ) from None
    if not isinstance(content, dict):
        raise DataError("this is no list of settings", file=path, remedy="write lines like 'd_model: 32'")
    if "parameters" in content and "format" in content:
        saved = dict(content["parameters"])
        return {name: value for name, value in saved.items() if name not in _OPTION_FOR}
    return content


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """``["d_model=32", "backbone_options.n_heads=2"]`` as a mapping; values are read as YAML.

    Example:
        >>> parse_assignments(["d_model=32", "backbone_options.n_heads=2"])
        {'d_model': 32, 'backbone_options': {'n_heads': 2}}
    """
    import yaml  # noqa: PLC0415

    found: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise typer.BadParameter(f"{assignment!r} is not of the form key=value.", param_hint="--set")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        *outer, last = path.strip().split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{name} is both a value and a mapping.", param_hint="--set")
        place[last] = value
    return found


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, the second winning; mappings within are merged in the same way."""
    both = dict(first)
    for name, value in second.items():
        inner = both.get(name)
        both[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def checked(kind: type[Estimator], settings: dict[str, Any], origin: str) -> dict[str, Any]:
    """The settings as the estimator takes them.

    Raises:
        typer.BadParameter: for a key it has not, or a value of another type.
    """
    hints = typing.get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.name not in _OPTION_FOR]
    result = {}
    for name, value in settings.items():
        if name in _OPTION_FOR:
            raise typer.BadParameter(f"{name} is not set here, use {_OPTION_FOR[name]}.", param_hint=origin)
        if name not in known:
            advice = did_you_mean(str(name), sorted(known))
            raise typer.BadParameter(f"{kind.__name__} has no parameter {name!r}; {advice}.", param_hint=origin)
        fits, converted = _converted(value, hints[name])
        if not fits:
            raise typer.BadParameter(f"{name} must be {in_words(hints[name])}, not {value!r}.", param_hint=origin)
        result[name] = converted
    return result


def in_words(hint: Any) -> str:
    """What a value has to be."""
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(in_words(part) for part in get_args(hint))
    if get_origin(hint) in (list, tuple):
        return "a list"
    return _WORDS.get(get_origin(hint) or hint, str(hint))


def _converted(value: Any, hint: Any) -> tuple[bool, Any]:  # noqa: PLR0911
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        # a number that is written as a word, such as 1e-3, which YAML takes for one, is a number where both are allowed
        attempts = [_converted(value, part) for part in sorted(inner, key=lambda part: part is str)]
        return next((attempt for attempt in attempts if attempt[0]), (False, value))
    if origin is Literal:
        return value in inner, value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        each = [inner[0]] * len(value) if Ellipsis in inner else list(inner)
        parts = [_converted(item, part) for item, part in zip(value, each, strict=False)]
        return len(each) == len(value) and all(fits for fits, _ in parts), tuple(item for _, item in parts)
    if hint is Any:
        return True, value
    if hint is float:
        return _as_float(value)
    if isinstance(value, bool):
        return hint is bool, value
    return isinstance(value, origin or hint), value


def _as_float(value: Any) -> tuple[bool, Any]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False, value
    try:
        return True, float(value)
    except ValueError:
        return False, value

"""Parameters of an estimator from a YAML file and from ``--set``, checked one by one.

A parameter that is a dataclass, such as ``training``, may be given as a mapping (``training: {max_epochs: 2}``,
``training.max_epochs=2``), or its fields beside the other parameters (``max_epochs: 2``), which is how they come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
import yaml

from contiformer.data import DataError, did_you_mean, read_text
from contiformer.estimators.input_checks import described, fits

#: Given by options of the command line, and not part of a configuration.
_OPTION_FOR = {"run_dir": "--output"}
_WORDS = {dict: "a mapping", NoneType: "null", tuple: "a list"}


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file; of the ``config.json`` of a run its parameters."""
    try:
        content = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = f"this is no YAML ({getattr(error, 'problem', None) or 'it cannot be understood'})"
        row = None if mark is None else mark.line + 1
        raise DataError(problem, file=path, row=row, remedy="write lines like 'd_model: 32'") from None
    if not isinstance(content, dict):
        raise DataError("this is no list of settings", file=path, remedy="write lines like 'd_model: 32'")
    if "parameters" in content and "format" in content:
        return {name: value for name, value in content["parameters"].items() if name not in _OPTION_FOR}
    return content


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """``["d_model=32", "backbone_options.n_heads=2"]`` as a mapping; values are read as YAML.

    Example:
        >>> from contiformer.cli.settings import parse_assignments
        >>> parse_assignments(["d_model=32", "backbone_options.n_heads=2"])
        {'d_model': 32, 'backbone_options': {'n_heads': 2}}
    """
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


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the second winning; mappings within are merged in the same way."""
    both = dict(first)
    for name, value in second.items():
        inner = both.get(name)
        both[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def checked(kind: type, settings: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The settings as the estimator ``kind`` takes them, fields of nested dataclasses beside the others.

    An unknown key, or a value of another type, is refused with the ``origin`` of the settings.
    """
    hints = get_type_hints(kind)
    own = {one.name: hints[one.name] for one in fields(kind)}
    nested = {name: inner for name, hint in own.items() if (inner := _dataclass_in(hint)) is not None}
    home = {one.name: inner for inner in nested.values() for one in fields(inner)}
    known = sorted({*own, *home} - set(_OPTION_FOR))
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _OPTION_FOR:
            raise typer.BadParameter(f"{name} is not set here, use {_OPTION_FOR[name]}.", param_hint=origin)
        if name not in known:
            advice = did_you_mean(str(name), known)
            raise typer.BadParameter(f"{kind.__name__} has no parameter {name!r}; {advice}.", param_hint=origin)
        if name in nested and isinstance(value, Mapping):
            inside = checked(nested[name], value, origin)
            twice = next((inner for inner in inside if inner in settings), None)
            if twice is not None:
                raise typer.BadParameter(f"{twice} is given twice, also as {name}.{twice}.", param_hint=origin)
            result |= inside
            continue
        hint = own[name] if name in own else get_type_hints(home[name])[name]
        converted = _from_yaml(value, hint)
        if not fits(converted, hint):
            raise typer.BadParameter(f"{name} must be {_in_words(hint)}, not {value!r}.", param_hint=origin)
        if name not in nested:  # null there means that nothing is set
            result[name] = converted
    return result


def _dataclass_in(hint: Any) -> type | None:
    """The dataclass of a hint such as ``TrainingOptions | None``."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((part for part in parts if isinstance(part, type) and is_dataclass(part)), None)


def _in_words(hint: Any) -> str:
    """A type in the words of YAML."""
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_in_words, get_args(hint)))
    return "a mapping" if is_dataclass(hint) else _WORDS.get(get_origin(hint) or hint, described(hint))


def _from_yaml(value: Any, hint: Any) -> Any:
    """Lists as tuples, and numbers that YAML takes for words, such as 1e-3, as numbers."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, list):
        inner = next((get_args(kind) for kind in kinds if get_origin(kind) is tuple), None)
        return value if inner is None else tuple(_from_yaml(item, inner[0]) for item in value)
    if float in kinds and not (isinstance(value, bool) or (isinstance(value, int) and int in kinds)):
        try:
            return float(value)
        except (TypeError, ValueError):
            return value
    return value

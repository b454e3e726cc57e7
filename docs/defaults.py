"""Tables of parameters and training options with their defaults, from the estimators themselves."""

import inspect
import re
from dataclasses import fields
from typing import Any

import contiformer
from contiformer import TrainingOptions
from docs.docstrings import plain

ESTIMATORS = [contiformer.Classifier, contiformer.Regressor, contiformer.Interpolator, contiformer.Forecaster]
ESTIMATORS.append(contiformer.EventPredictor)
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)


def parameters() -> str:
    """Parameters of the estimators: default, or defaults where estimators differ, and meaning."""
    names = list(dict.fromkeys(one.name for kind in ESTIMATORS for one in fields(kind)))
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for name in names:
        defaults = {k.__name__: one.default for k in ESTIMATORS for one in fields(k) if one.name == name}
        meaning = next(text for k in ESTIMATORS if (text := _meanings(k).get(name)))
        lines.append(f"| `{name}` | {_shown(defaults)} | {meaning} |")
    return "\n".join(lines)


def options() -> str:
    """Training options: defaults, by estimator where they differ."""
    lines = ["| option | default |", "|---|---|"]
    for one in fields(TrainingOptions):
        kinds = [kind for kind in ESTIMATORS if one.name not in kind.unused_options]
        lines.append(f"| `{one.name}` | {_shown({k.__name__: _option(k, one.name) for k in kinds})} |")
    return "\n".join(lines)


def _option(kind: Any, name: str) -> Any:
    return getattr(TrainingOptions().with_defaults(**kind.training_defaults), name)


def _shown(defaults: dict[str, Any]) -> str:
    """A single default for all estimators; otherwise each with the estimators that have it."""
    by_value: dict[str, list[str]] = {}
    for kind, value in defaults.items():
        by_value.setdefault(f"`{value!r}`", []).append(kind)
    if len(by_value) == 1 and len(defaults) == len(ESTIMATORS):
        return next(iter(by_value))
    return ", ".join(f"{value} ({', '.join(kinds)})" for value, kinds in by_value.items())


def _meanings(kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = (inspect.cleandoc(one.__doc__ or "").split("Attributes:\n")[1:] or [""])[0].split("\n\n")[0]
        for names, meaning in _ENTRY.findall(text):
            found.update(dict.fromkeys(names.split(", "), " ".join(plain(meaning).split()).replace("|", "\\|")))
    return found

"""Code in README and on the pages of the site: it runs, uses nothing hidden, and its commands exist."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from typer.main import get_command

from benchmarks.__main__ import app as benchmarks
from contiformer.cli.main import app
from contiformer.training import TrainingOptions
from reproduction import experiments
from reproduction.__main__ import app as reproduction

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {"contiformer": app, "python -m benchmarks": benchmarks, "python -m reproduction": reproduction}
_CODE = re.compile(r"```python exec=\"true\" source=\"above\"[^\n]*\n(.*?)```", re.DOTALL)
_NAMED = {**experiments.EXPERIMENTS, **experiments.BOARDS, **dict.fromkeys(("list", "report", "quick", "publish"))}


def blocks(page: Path, fence: str) -> list[str]:
    return re.findall(rf"^```{fence}[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def words_of(page: Path) -> list[list[str]]:
    """The commands on a page, in blocks and in sentences, as a shell splits them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    lines += [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    found = [line for line in lines if line.startswith(tuple(f"{program} " for program in PROGRAMS))]
    return [shlex.split(line.split(" | ")[0], comments=True) for line in found]


def options_of(command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--debug", "--help"}


def complaint(words: list[str]) -> str:
    """What is wrong with a command; empty: nothing."""
    program = "contiformer" if words[0] == "contiformer" else " ".join(words[:3])
    command, rest = get_command(PROGRAMS[program]), words[len(program.split()) :]
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    if program.endswith("reproduction") and rest[0] not in (*_NAMED, "boards", "NAME"):
        return f"no experiment {rest[0]}"
    unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in options_of(command)]
    return f"no option {unknown}" if unknown else ""


def test_commands_are_spelt_right():
    commands = [(page, words) for page in PAGES for words in words_of(page)]
    assert len(commands) > 60
    wrong = [(page.name, " ".join(words), found) for page, words in commands if (found := complaint(words))]
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if _CODE.search(page.read_text())], ids=lambda page: page.stem)
def test_shown_code_uses_no_name_of_hidden_code(page):
    tree = ast.parse("\n".join(_CODE.findall(page.read_text(encoding="utf-8"))))
    known = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            known.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used - known == set()


def frames() -> dict[str, pl.DataFrame]:
    """Small tables in the columns that README names, by the name of the estimator that takes them."""
    draw = np.random.default_rng(0)
    patients = np.repeat(np.arange(8), 6)
    hours = np.tile([0.0, 5.0, 11.0, 24.0, 36.0, 48.0], 8)
    results = draw.normal(size=48)
    stamps = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 8), "1h", eager=True)
    return {
        "clf": pl.DataFrame({"patient": patients, "hour": hours, "test": ["pH", "pulse"] * 24, "result": results}),
        "imp": pl.DataFrame({"patient": patients, "hour": hours, "pulse": results}),
        "Forecaster": pl.DataFrame({"stamp": stamps, "load": np.sin(np.arange(len(stamps)) / 4)}),
        "EventPredictor": pl.DataFrame({"user": patients, "hour": hours, "action": ["buy", "sell"] * 24}),
    }


def test_code_of_the_readme_runs(monkeypatch):
    # one epoch shows that the calls are right
    monkeypatch.setattr(TrainingOptions, "epochs_for", lambda self, steps_per_epoch: 1)
    estimators, attention = blocks(ROOT / "README.md", "python")
    names = {"labels": pl.DataFrame({"patient": range(8), "died": [False, True] * 4})}
    tables = frames()
    for statement in ast.parse(estimators).body:
        code = ast.unparse(statement)
        names["df"] = next((table for name, table in tables.items() if name in code), None)
        exec(code, names)
    names |= {"x": torch.randn(2, 5, 64), "times": torch.rand(2, 5).sort().values, "mask": torch.ones(2, 5).bool()}
    names["anywhere"] = torch.rand(2, 3)
    exec(attention, names)

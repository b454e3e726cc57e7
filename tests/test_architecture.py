"""The architecture: who imports whom, public names only from outside, and what the wheel holds."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from shutil import copytree, ignore_patterns, which
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "contiformer"
COMPILER = which(os.environ.get("CC", "cc"))
#: Packages and modules whose ``__all__`` is public.
PUBLIC = (
    "contiformer",
    "contiformer.backbones",
    "contiformer.cli",
    "contiformer.data",
    "contiformer.data.catalog",
    "contiformer.data.synthetic",
    "contiformer.estimators",
    "contiformer.machine",
    "contiformer.nn",
    "contiformer.paths",
    "contiformer.plots",
    "contiformer.serving",
    "contiformer.tasks",
    "contiformer.tasks.events",
    "contiformer.training",
)
#: From the bottom to the top: a package imports only those before it.
ORDER = (
    *("lazy", "paths", "native", "nn", "data", "backbones", "tasks", "plots", "training", "estimators", "machine"),
    *("integrations", "serving", "cli"),
)
#: Methods that import a package above theirs when they are called.
CALLED = {"estimators": {"integrations"}}
#: Packages that know nothing of one another, whatever their order.
APART = {"data": {"native", "nn"}}


def sources(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts]


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """(module, name) of every import, also local ones; those for type checkers are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("folder", ["reproduction", "benchmarks", "examples"])
def test_only_public_names_are_imported(folder):
    wrong = []
    for path in sources(ROOT / folder):
        for module, name in imports(path):
            if module.split(".")[0] != "contiformer":
                continue
            public = module in PUBLIC and (name is None or name in import_module(module).__all__)
            wrong += [] if public else [f"{path.relative_to(ROOT)}: {module} {name or ''}"]
    assert wrong == []


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module):
    found = import_module(module)
    assert len(found.__all__) == len(set(found.__all__))
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_benchmarks_know_nothing_of_the_reproduction():
    for path in sources(ROOT / "benchmarks"):
        assert "reproduction" not in {module.split(".")[0] for module, _ in imports(path)}, path


def test_the_library_knows_neither():
    for path in sources(SOURCE):
        found = {module.split(".")[0] for module, _ in imports(path)}
        assert not found & {"reproduction", "benchmarks", "tests"}, path


def package_graph() -> dict[str, dict[str, set[str]]]:
    """For each package (or module beside them) of the library those it imports, and in which files."""
    graph: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sources(SOURCE):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module, name in imports(path):
            parts = [*module.split("."), *([name] if module == "contiformer" and name else [])]
            if parts[0] != "contiformer" or room == "__init__" or len(parts) < 2:
                continue
            other = parts[1]
            if other != room and ((SOURCE / other).is_dir() or (SOURCE / f"{other}.py").is_file()):
                graph[room][other].add(str(path.relative_to(SOURCE)))
    return graph


def test_imports_go_one_way():
    """No package cycle follows, because every import is of a package further down."""
    wrong = {}
    for room, others in package_graph().items():
        for other, files in others.items():
            if other in CALLED.get(room, ()):
                continue
            if ORDER.index(other) >= ORDER.index(room) or other in APART.get(room, ()):
                wrong[f"{room} -> {other}"] = sorted(files)
    assert wrong == {}


def test_packages_above_are_imported_in_functions():
    for room, others in CALLED.items():
        for path in sources(SOURCE / room):
            top = [
                node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)
            ]
            assert not [node for node in top if (node.module or "").split(".")[1:2] in [[other] for other in others]], (
                path
            )


def test_kernels_of_attention_need_none_of_other_models():
    native = SOURCE / "native"
    for path in native.glob("*.py"):
        assert not [module for module, name in imports(path) if "rivals" in (name, *module.split("."))], path
    for path in native.glob("*.[ch]"):
        assert "rivals/" not in path.read_text(encoding="utf-8"), path


def test_every_public_method_is_documented_where_it_is_or_in_a_base_class():
    missing = []
    for path in sources(SOURCE):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = import_module(".".join(part for part in parts if part != "__init__"))
        kinds = {kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__}
        for kind in kinds:
            public = [name for name in vars(kind) if not f".{kind.__qualname__}.{name}".count("._")]
            described = {name: getattr(kind, name) for name in public}
            missing += [
                f"{module.__name__}.{kind.__qualname__}.{name}"
                for name, found in described.items()
                if (inspect.isroutine(found) or isinstance(found, property)) and not inspect.getdoc(found)
            ]
    assert missing == []


def public_classes() -> Iterator[tuple[str, type]]:
    """Classes in the ``__all__`` of any package, and of modules whose names are public."""
    packages = {".".join(path.relative_to(SOURCE.parent).parent.parts) for path in SOURCE.rglob("__init__.py")}
    for module in sorted(packages | set(PUBLIC)):
        found = import_module(module)
        every = {f"{module}.{name}": getattr(found, name) for name in getattr(found, "__all__", ())}
        yield from ((name, one) for name, one in every.items() if inspect.isclass(one))


def documented() -> Iterator[tuple[str, object]]:
    """Names on the site's reference pages."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            module, _, name = line.removeprefix("::: ").rpartition(".")
            # Spark and Ray need not be installed
            if line.startswith("::: ") and "integrations" not in module:
                yield f"{module}.{name}", getattr(import_module(module), name)


def test_public_classes_and_documented_names_have_examples():
    """The tests run all docstring examples, so an example that is there is one that works."""
    shown = {**dict(documented()), **dict(public_classes())}
    assert len(shown) > 90
    assert [name for name, found in shown.items() if ">>> " not in (found.__doc__ or "")] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel that is built from a copy of the tree."""
    copy, target = tmp_path_factory.mktemp("tree") / "tree", tmp_path_factory.mktemp("wheel")
    skipped = ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "*.so", "results", "demo-output", "runs")
    copytree(ROOT, copy, ignore=skipped)
    # the last flag counts: kernels that are not optimised compile in seconds
    compiler = target / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {COMPILER or "false"} "$@" -O0\n')
    compiler.chmod(0o700)
    build = f"from setuptools import build_meta; print(build_meta.build_wheel({str(target)!r}))"
    command, environment = [sys.executable, "-c", build], {**os.environ, "CC": str(compiler)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def test_the_wheel_holds_the_library_alone(wheel):
    names = ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"contiformer"}
    assert not [name for name in names if name.endswith(".csv")]
    modules = {str(path.relative_to(ROOT / "src")) for path in sources(SOURCE)}
    assert modules <= set(names)
    assert {
        "contiformer/py.typed",
        "contiformer/data/catalog/checksums.txt",
        "contiformer/data/catalog/datasets.toml",
    } <= set(names)
    static = {str(path.relative_to(ROOT / "src")) for path in (SOURCE / "serving" / "static").rglob("*.*")}
    assert static <= set(names)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_kernels_of_the_wheel_run(wheel, tmp_path):
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    written = {path.relative_to(SOURCE) for path in (SOURCE / "native").rglob("*.[ch]")}
    assert written == {path.relative_to(tmp_path / "contiformer") for path in tmp_path.rglob("*.[ch]")}
    command, environment = (
        [sys.executable, ROOT / ".ci" / "check_wheel.py"],
        {**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    environment.pop("CONTIFORMER_NATIVE", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "contiformer" / "__init__.py")

"""Array annotations: every one of the package is checked at run time in the tests."""

import importlib
import inspect
import pkgutil

import jaxtyping
import pytest
import torch

import contiformer
from contiformer.paths.interpolation import interpolate
from tests.array_types import annotates_arrays


def modules():
    """Every module of the package whose optional packages are installed."""
    for info in pkgutil.walk_packages(contiformer.__path__, "contiformer."):
        if info.name.endswith(("__main__", "_kernels")):
            continue
        try:
            yield importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("contiformer"):
                raise


def functions(module):
    """Functions of a module and methods of its classes, without the wrappers that check them."""
    for holder in (module, *(kind for _, kind in inspect.getmembers(module, inspect.isclass))):
        if getattr(holder, "__module__", module.__name__) == module.__name__:
            for member in vars(holder).values():
                plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                function = inspect.unwrap(plain) if callable(plain) else plain
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    yield function


def test_wrong_shapes_raise():
    times, values = torch.zeros(2, 3), torch.zeros(2, 4, 1)
    with pytest.raises(jaxtyping.TypeCheckError, match=r"checking the parameters of .*interpolate"):
        interpolate("linear", times, values)


@pytest.mark.no_array_checks
def test_checks_can_be_switched_off():
    with pytest.raises(RuntimeError, match="size"):
        interpolate("linear", torch.zeros(2, 3), torch.zeros(2, 4, 1))


def test_every_array_annotation_can_be_resolved():
    """jaxtyping skips an annotation with names that are only imported for type checkers."""
    found, unresolved = 0, []
    for module in modules():
        for function in functions(module):
            for name, hint in function.__annotations__.items():
                if isinstance(hint, str) and annotates_arrays(hint, function.__globals__):
                    found += 1
                    try:
                        eval(hint, function.__globals__)
                    except NameError as error:
                        unresolved.append(f"{module.__name__}.{function.__qualname__}, {name}: {error}")
    assert found > 500
    assert not unresolved

"""Run-time check of jaxtyping annotations: shapes and dtypes of arrays, and nothing else.

Plain types (``d_model: int``) are left alone: the library checks those itself, with messages of its own. Functions
without array annotations are not wrapped, and in each test the first calls of a function are checked: loops keep their
speed.
"""

import dataclasses
import functools
import inspect
import typing
from collections import Counter
from collections.abc import Callable
from typing import Any

import jaxtyping
import torch
from beartype import beartype

#: Checked calls of each function in each test.
CALLS = 20

_DTYPES = tuple(f"{name}[" for name in dir(jaxtyping) if isinstance(getattr(jaxtyping, name), type(jaxtyping.Float)))
_jaxtyped = jaxtyping.jaxtyped
_left = CALLS
_seen: Counter[Callable] = Counter()


def install(package: str) -> None:
    """Check all calls of a package, which must not have been imported yet."""
    jaxtyping.jaxtyped = checked  # the import hook decorates with this name
    jaxtyping.install_import_hook(package, f"{__name__}.{check_arrays.__name__}")


def start_test(calls: int = CALLS) -> None:
    """Begin to count anew; 0 switches the check off."""
    global _left  # noqa: PLW0603
    _left = calls
    _seen.clear()


def annotates_arrays(annotation: object, names: dict[str, Any] | None = None) -> bool:
    """Whether an annotation has a jaxtyping array in it; one that is a string is resolved with the given names."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, names)
        except NameError:  # of a class further down, or imported for type checkers only
            return any(dtype in str(annotation) for dtype in _DTYPES)
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(annotates_arrays(part) for part in typing.get_args(annotation) if not isinstance(part, str))


def check_arrays(function: Callable) -> Callable:
    """Let beartype check the array annotations of a function."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if annotates_arrays(hint)}
    return beartype(function) if function.__annotations__ else function


def checked(target: Any = None, *, typechecker: Callable = check_arrays) -> Any:
    """``jaxtyping.jaxtyped`` for functions, methods and dataclasses with array annotations."""
    if target is None:
        return functools.partial(checked, typechecker=typechecker)
    if isinstance(target, property):
        return property(*(f and checked(f, typechecker=typechecker) for f in (target.fget, target.fset, target.fdel)))
    if isinstance(target, classmethod | staticmethod):
        return type(target)(checked(target.__func__, typechecker=typechecker))
    if inspect.isclass(target):
        if dataclasses.is_dataclass(target) and "__init__" in vars(target):
            target.__init__ = checked(target.__init__, typechecker=typechecker)
        return target
    # a function inside a function that is being traced stays as it is
    if torch.compiler.is_compiling() or not any(
        annotates_arrays(hint, target.__globals__) for hint in inspect.get_annotations(target).values()
    ):
        return target
    with_checks = _jaxtyped(target, typechecker=typechecker)

    @functools.wraps(target)
    def first_calls_checked(*args: Any, **options: Any) -> Any:
        if _left and _seen[target] < _left:
            _seen[target] += 1
            return with_checks(*args, **options)
        return target(*args, **options)

    return first_calls_checked

"""Checks of a saved model before it is built: a stranger's folder must cost no more than its weights."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.modules import module as registration

from contiformer.data.errors import DataError
from contiformer.estimators.input_checks import described, fits

#: Whole numbers of a configuration may be as large as the largest size of a weight, and this large anyway.
LARGEST_NUMBER = 1_000_000
#: Modules and tensors that a model may have beyond those with weights, and numbers in tensors that are not saved.
_MORE_PARTS, _MORE_NUMBERS = 10_000, 10_000_000
_LARGEST = 2**62

Sizes = dict[str, tuple[int, ...]]


def weight_sizes(path: Path) -> Sizes:
    """The shapes in the header of a safetensors file; no weight is read."""
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def check_numbers(tree: Any, sizes: Sizes, place: str) -> None:
    """Reject whole numbers in a configuration that are larger than anything in the weights."""
    largest = max((max(shape) for shape in sizes.values() if math.prod(shape) and shape), default=0)
    items: Any = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        if isinstance(value, int) and abs(value) > max(largest, LARGEST_NUMBER):
            raise DataError(f"{place}.{name} is {float(value) if abs(value) < 1e300 else 'beyond 1e300'}, too large")
        check_numbers(value, sizes, f"{place}.{name}")


def check_fields(thing: Any, place: str) -> None:
    """Reject fields of a dataclass, read from a file, whose values are not of their types or not finite."""
    hints = get_type_hints(type(thing))
    for field in fields(thing):
        value = getattr(thing, field.name)
        if not fits(value, hints[field.name]) or not _is_finite(value):
            raise DataError(f"{place}.{field.name} must be {described(hints[field.name])}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, int | float) or abs(value) <= (_LARGEST if isinstance(value, int) else 1e300)


def check_arguments(kind: type, given: Mapping[str, Any], place: str) -> None:
    """Reject arguments of a constructor, read from a file, that are not of the types in its signature."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        hints |= get_type_hints(vars(base)["__init__"]) if "__init__" in vars(base) and base is not object else {}
    for name, value in given.items():
        if name in hints and not (fits(value, hints[name]) and _is_finite(value)):
            raise DataError(f"{place}.{name} must be {described(hints[name])}")


def check_sizes(build: Callable[[], torch.nn.Module], sizes: Sizes) -> torch.nn.Module:
    """Reject a model whose weights would have other names or shapes than those in the file.

    The model is built without memory for its weights, and no further than it could fit; it is returned.
    """
    with torch.device("meta"), _no_larger_than(sizes):
        model = build()
    wanted = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    for name in sorted(wanted.keys() | sizes.keys()):
        if wanted.get(name) != sizes.get(name):
            found, expected = ("none" if x is None else list(x) for x in (sizes.get(name), wanted.get(name)))
            raise DataError(f"the weight {name!r} has the shape {found}; the configuration needs {expected}")
    return model


@contextmanager
def _no_larger_than(sizes: Sizes) -> Iterator[None]:
    """Stop building modules in this thread when they have many more parts or numbers than the weights."""
    parts = 10 * len(sizes) + _MORE_PARTS
    numbers = 10 * sum(map(math.prod, sizes.values())) + _MORE_NUMBERS
    builder = threading.get_ident()

    def count(module: Any, name: str, part: Any) -> None:
        nonlocal parts, numbers
        if threading.get_ident() != builder:
            return
        parts -= 1
        numbers -= part.numel() if isinstance(part, Tensor) else 0
        if parts < 0 or numbers < 0:
            raise DataError("the configuration describes a far larger model than the weights")

    with ExitStack() as hooks:
        for register in (
            registration.register_module_parameter_registration_hook,
            registration.register_module_module_registration_hook,
            registration.register_module_buffer_registration_hook,
        ):
            hooks.callback(register(count).remove)
        yield

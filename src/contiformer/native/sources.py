"""The C sources as Python reads them: structs, constants and a checksum, so that layouts are written once, in C."""

from __future__ import annotations

import ctypes
import re
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # setup.py runs this file where there is no torch
    from torch import Tensor

_FOLDER = Path(__file__).parent
_TYPES = {
    **{"int": ctypes.c_int, "long": ctypes.c_long, "float": ctypes.c_float, "double": ctypes.c_double},
    **{"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64},
}
#: type, stars of a pointer, name, size of an array
_MEMBER = re.compile(r"((?:\w+ )+)((?:\* (?:const )?)*)(\w+)(?: ?\[ ?(\w+) ?\])?")


class Struct(ctypes.Structure):
    """The argument of a kernel: numbers, and pointers to tensors."""

    def point_to(self, **tensors: Tensor | None) -> None:
        """Set the pointers of these names; the tensors must lie as the kernel takes them, and outlive the struct."""
        for name, tensor in tensors.items():
            setattr(self, name, None if tensor is None else tensor.data_ptr())


@cache
def struct_of(source: str, name: str) -> type[Struct]:
    """The type that a C file of this folder declares by ``typedef struct { ... } name;``.

    Members may be numbers, pointers, other structs of the file, and arrays whose size is a number or ``#define``-d as
    one in the file. Anything else is an error.

    Example:
        >>> from contiformer.native.sources import struct_of
        >>> struct_of("sweep.c", "Sweep")(states=3).states
        3
    """
    found = re.search(rf"typedef struct ?{{([^{{}}]*)}} ?{name} ?;", _text(source))
    if found is None:
        raise ValueError(f"{source} has no `typedef struct {{ ... }} {name};` without braces inside")
    declarations = [part.strip() for part in found[1].split(";") if part.strip()]
    fields = [field for declaration in declarations for field in _fields(source, name, declaration)]
    return type(name, (Struct,), {"_fields_": fields})


@cache
def constant(source: str, name: str) -> int:
    """The integer that a C file of this folder ``#define``-s."""
    found = re.search(rf"^#define {name} (\d+)$", (_FOLDER / source).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{source} has no `#define {name}` with an integer")
    return int(found[1])


@cache
def checksum() -> int:
    """CRC-32 of all C sources. A library that was compiled from others has another one, see setup.py."""
    total = 0
    for path in sorted(_FOLDER.rglob("*.[ch]")):
        total = zlib.crc32(path.read_bytes(), total)
    return total


@cache
def _text(source: str) -> str:
    """The file without comments, with single spaces between its words and around stars."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", (_FOLDER / source).read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(text.replace("*", " * ").split())


def _fields(source: str, struct: str, declaration: str) -> list[tuple[str, Any]]:
    """Names and types of one declaration: ``const float *a, *b``, ``long n``, ``float reach[STAGES]``."""
    fields: list[tuple[str, Any]] = []
    base = ""
    for part in declaration.split(","):
        member = _MEMBER.fullmatch(base + part.strip())
        if member is None:
            raise ValueError(f"{source}, struct {struct}: cannot read `{declaration};`, see {__file__}")
        base, stars, name, size = member.groups()
        kind: Any = ctypes.c_void_p if stars else _TYPES.get(base.strip())
        if kind is None and f"}} {base.strip()};" not in _text(source):
            raise ValueError(f"{source}, struct {struct}: unknown type in `{declaration};`, known are {list(_TYPES)}")
        kind = kind or struct_of(source, base.strip())
        fields.append(
            (name, kind if size is None else kind * (int(size) if size.isdigit() else constant(source, size)))
        )
    return fields

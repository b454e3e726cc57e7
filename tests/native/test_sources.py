"""Structs and constants that are read from C, against what a compiler makes of the same files."""

import ctypes
import os
import re
import shutil
import subprocess
import sys

import pytest

from contiformer.native import library, sources
from contiformer.native.rivals import neural_cde
from contiformer.native.sources import checksum, constant, struct_of

COMPILER = shutil.which(os.environ.get("CC", "cc"))
#: (source, name) of every struct that the library asks for.
ASKED_FOR = sorted(
    {
        found
        for path in sources._FOLDER.parent.rglob("*.py")
        for found in re.findall(r'struct_of\("([\w./]+)", "(\w+)"\)', path.read_text(encoding="utf-8"))
    }
)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A C file, by its name and text, in the folder that is read."""
    for cached in (struct_of, constant, checksum, sources._text):
        cached.cache_clear()
    monkeypatch.setattr(sources, "_FOLDER", tmp_path)

    def write(text, name="some.c"):
        (tmp_path / name).write_text(text)

    yield write
    for cached in (struct_of, constant, checksum, sources._text):
        cached.cache_clear()


def test_numbers_pointers_arrays_and_structs_are_read(written):
    written("""
#define SIZE 3
typedef struct { long a, b; } Inner;
typedef struct {
    /* comments; with semicolons, and commas */
    long n, m; // and of this kind; too
    int64_t wide;
    uint64_t seed;
    int yes;
    float x, y[SIZE], z[2];
    double w;
    const float *p, *const *q;
    float *const *r;
    const unsigned char *valid;
    double *each[SIZE];
    Inner one, two;
} Outer;
""")
    inner = struct_of("some.c", "Inner")
    pointers = [(name, ctypes.c_void_p) for name in ("p", "q", "r", "valid")]
    assert struct_of("some.c", "Outer")._fields_ == [
        *((name, ctypes.c_long) for name in ("n", "m")),
        *(("wide", ctypes.c_int64), ("seed", ctypes.c_uint64), ("yes", ctypes.c_int), ("x", ctypes.c_float)),
        *(("y", ctypes.c_float * 3), ("z", ctypes.c_float * 2), ("w", ctypes.c_double), *pointers),
        *(("each", ctypes.c_void_p * 3), ("one", inner), ("two", inner)),
    ]


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("short n", "unknown type in `short n;`"),
        ("unsigned char n", "unknown type in `unsigned char n;`"),
        ("Other x", "unknown type in `Other x;`"),
        ("int flag : 1", "cannot read `int flag : 1;`"),
        ("int (*call)(void)", "cannot read"),
        ("float x[2][3]", "cannot read"),
        ("int", "cannot read `int;`"),
        ("long a b, c", "unknown type in `long a b, c;`"),
        ("float *p, int n", "unknown type"),
        ("float x[SIZE]", "no `#define SIZE`"),
        ("union { int i; } u", "without braces inside"),
    ],
)
def test_other_declarations_are_rejected(written, member, message):
    written(f"typedef struct {{ long n; {member}; }} Some;")
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        struct_of("some.c", "Some")
    assert "some.c" in str(caught.value)


def test_missing_struct_is_rejected(written):
    written("typedef struct { long n; } Some;")
    with pytest.raises(ValueError, match="Another"):
        struct_of("some.c", "Another")


def test_checksum_covers_every_source(written):
    found = []
    for name, text in (("a.c", "1"), ("a.c", "2"), ("b.h", "1"), ("no-source.txt", "1")):
        written(text, name)
        checksum.cache_clear()
        found.append(checksum())
    assert len(set(found[:3])) == 3
    assert found[3] == found[2]


def test_every_kernel_reads_its_struct():
    assert len(ASKED_FOR) >= 5
    handwritten = [path for path in sources._FOLDER.rglob("*.py") if "_fields_ =" in path.read_text(encoding="utf-8")]
    assert handwritten == []


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
@pytest.mark.parametrize(("source", "name"), ASKED_FOR)
def test_layouts_are_those_of_the_compiler(source, name):
    struct = struct_of(source, name)
    lines = [f'#include "{source}"', "#include <stddef.h>"]
    lines += [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "size");']
    for field, _ in struct._fields_:
        place = getattr(struct, field)
        lines.append(f'_Static_assert(offsetof({name}, {field}) == {place.offset}, "{field}");')
        lines.append(f'_Static_assert(sizeof((({name} *)0)->{field}) == {place.size}, "{field}");')
    command = [COMPILER, "-w", "-fsyntax-only", "-x", "c", f"-I{sources._FOLDER}", "-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_constants_are_those_of_the_sources():
    assert constant("common.h", "LANES") == library.LANES
    assert constant("rivals/neural_cde.c", "STAGES") == neural_cde._STAGES


def test_nothing_is_read_at_import():
    program = (
        "import contiformer.nn, contiformer.native.rivals.ode_rnn; from contiformer.native import sources; "
        "print(sources._text.cache_info().misses, sources.checksum.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]

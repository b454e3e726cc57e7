"""The kernels: plain C without Python's headers, loaded with ctypes. Everything else is in pyproject.toml."""

from pathlib import Path
from runpy import run_path
from sysconfig import get_platform

from setuptools import Extension, setup

NATIVE = Path("src/contiformer/native")
# the library knows which sources it was compiled from, and is not used with others
checksum = run_path(str(NATIVE / "sources.py"))["checksum"]()
kernels = Extension(
    "contiformer.native._kernels",
    sources=sorted(path.as_posix() for path in NATIVE.rglob("*.c")),
    depends=sorted(path.as_posix() for path in NATIVE.rglob("*.h")),
    define_macros=[("SOURCES", f"{checksum}u")],
    extra_compile_args=[
        *("-O3", "-g0", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"),
        # a processor that has vectors of 512 bits is to use them
        *(["-mprefer-vector-width=512"] if get_platform() == "linux-x86_64" else []),
    ],
    # where it does not compile, PyTorch does the same work
    optional=True,
)
setup(ext_modules=[kernels])

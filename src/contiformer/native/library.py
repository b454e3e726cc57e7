"""Finding and calling the compiled kernels."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor

from contiformer.native.sources import checksum

#: Floats in a vector of common.h. Widths are whole ones, or are padded to them.
LANES = 8

#: Bytes from which on memory is asked for in large pages, which have 2 MB.
LARGE = 2**21

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none or they were compiled from other sources."""
    others = []
    for path in sorted(Path(__file__).parent.glob("_kernels*")):
        try:
            found = ctypes.CDLL(str(path))
        except OSError:  # of another system
            continue
        if _checksum_of(found) == checksum():
            return found
        others.append(path.name)
    if others:
        warnings.warn(
            f"{', '.join(others)} is not used, because the C sources beside it have changed since it was compiled: "
            "install contiformer again (in a clone: make install)",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _checksum_of(library: ctypes.CDLL) -> int | None:
    """Checksum of the sources a library was compiled from; None for a library without one."""
    try:
        function = library.contiformer_checksum
    except AttributeError:
        return None
    function.restype = ctypes.c_uint
    return function()


class use_kernels:  # noqa: N801 -- called like a function, as torch.set_grad_enabled is
    """Switch the C kernels on or off: from its call on, or, in a ``with`` statement or as a decorator, until the end.

    PyTorch computes the same without them, up to rounding. Until the first call, the environment variable
    ``CONTIFORMER_NATIVE`` decides, whenever a kernel could run: "0" switches them off. Where the installation could not
    compile the kernels, neither has an effect (``contiformer doctor`` tells).

    There is one switch for all threads of a process, since a backward pass may run in a thread of its own. Processes
    that are started later know of the variable only.

    Args:
        enabled: whether the kernels may run.

    Example:
        >>> import torch
        >>> from contiformer import use_kernels
        >>> from contiformer.nn import ContinuousAttention
        >>> attention = ContinuousAttention(16, 2, degree=7)
        >>> x, times = torch.randn(1, 9, 16), torch.linspace(0, 1, 9)[None]
        >>> with use_kernels(False):
        ...     expected = attention(x, times)
        >>> torch.allclose(attention(x, times), expected, atol=1e-5)
        True
    """

    #: None: the environment decides.
    _chosen: ClassVar[bool | None] = None

    def __init__(self, enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise TypeError(f"use_kernels takes True or False, not {enabled!r}")
        self._enabled, self._before = enabled, use_kernels._chosen
        use_kernels._chosen = enabled

    def __enter__(self) -> None:
        """The constructor has switched already."""

    def __exit__(self, *_: object) -> None:
        """Restore what there was before, also after an error."""
        use_kernels._chosen = self._before

    def __call__(self, function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        """The function with the kernels switched while it runs."""
        use_kernels._chosen = self._before

        @wraps(function)
        def switched(*args: _Given.args, **options: _Given.kwargs) -> _Result:
            with use_kernels(self._enabled):
                return function(*args, **options)

        return switched


def made_for(*tensors: Tensor) -> bool:
    """Whether the kernels are there, switched on, and made for these tensors: float32 on the CPU."""
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return False
    on = use_kernels._chosen
    if on is None:
        on = os.environ.get("CONTIFORMER_NATIVE") != "0"
    return on and kernels() is not None


@cache
def _parallel() -> ctypes.c_void_p:
    """Entry of the OpenMP runtime that PyTorch has loaded, or null where that is not GNU's.

    Its own threads, since two runtimes fight for the cores: those of PyTorch spin while they wait for work.
    """
    for path in Path(torch.__file__).parent.glob("lib/libgomp*.so*"):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return ctypes.c_void_p(None)


def new_memory(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised numbers for a kernel, in large pages where they are many: page faults took longer than the work."""
    made = like.new_empty(shape)
    size, compiled = made.numel() * made.element_size(), kernels()
    if size >= LARGE and compiled is not None:
        compiled.use_large_pages(ctypes.c_void_p(made.data_ptr()), ctypes.c_size_t(size))
    return made


def threads_for(items: int, per_thread: int) -> int:
    """The number of torch's threads that are worth waking for so many items."""
    return max(1, min(torch.get_num_threads(), items // per_thread))


def share_out(name: str, works: Sequence[ctypes.Structure], items: int) -> None:
    """Divide the items into one contiguous range for each struct, and call the kernel ``name`` on all of them at once.

    The kernels release Python's lock while they run. They return non-zero when they got no working memory.
    """
    compiled = kernels()
    assert compiled is not None
    pointers = (ctypes.c_void_p * len(works))(*(ctypes.addressof(work) for work in works))
    kernel = ctypes.cast(getattr(compiled, name), ctypes.c_void_p)
    if compiled.share_out(kernel, pointers, ctypes.c_long(len(works)), ctypes.c_long(items), _parallel()):
        raise MemoryError("a compiled kernel could not get its working memory")

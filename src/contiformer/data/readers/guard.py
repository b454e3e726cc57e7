"""Polars' failures as ours."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TypeVar

import polars as pl

from contiformer.data.errors import DataError

T = TypeVar("T")


def guarded(read: Callable[[], T], file: str | PathLike[str] | None) -> T:
    """The result, or a DataError with what polars says, also where it panics on damaged bytes."""
    try:
        return read()
    except MemoryError:
        raise
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"cannot be read: {_short(error)}", file=file) from None
    except BaseException as error:
        # a panic in polars is not an Exception, so that nobody catches it by accident
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(f"cannot be read: {_short(error)}", file=file, remedy="the file is damaged") from None


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]

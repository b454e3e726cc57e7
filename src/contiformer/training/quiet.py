"""Lightning without its own remarks: what matters is said by us."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities.warnings import PossibleUserWarning


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning's messages, advertisements and warnings are left out; all other warnings come through."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=PossibleUserWarning)
            for module in (r"lightning\.", r"torch\.optim\.lr_scheduler"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

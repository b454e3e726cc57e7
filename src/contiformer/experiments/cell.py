"""The smallest piece of a table: one model, trained once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Protocol = Literal["honest", "paper"]
Budget = Literal["full", "quick"]


@dataclass(frozen=True, order=True)
class Cell:
    """One training, that is one small file of results.

    Attributes:
        table: name of the experiment.
        data: name of the data set.
        setting: what else is fixed, such as "drop30", "horizon24" or "fold1".
        model: the backbone, or the variant in an ablation.
        seed: of everything.
        protocol: "honest": chosen by a part of the training data, test data read once; "paper": as the authors' code
            does, the epoch with the best test figure.

    Example:
        >>> cell = Cell("uea", "Libras", "drop30", "mtan", 0)
        >>> print(cell)
        uea Libras drop30 mtan seed 0
        >>> print(cell.path)
        uea/Libras/drop30/mtan-honest-seed0.json
    """

    table: str
    data: str
    setting: str
    model: str
    seed: int
    protocol: Protocol = "honest"

    @property
    def path(self) -> PurePosixPath:
        """Where its file lies below the folder of all cells."""
        name = f"{self.model.replace(':', '+')}-{self.protocol}-seed{self.seed}.json"
        return PurePosixPath(self.table) / self.data / self.setting / name

    def __str__(self) -> str:
        """The names in their order."""
        protocol = "" if self.protocol == "honest" else f" ({self.protocol} protocol)"
        return f"{self.table} {self.data} {self.setting} {self.model} seed {self.seed}{protocol}"

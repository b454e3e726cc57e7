"""What a model remembers after each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """The history up to and including each event, as far as a model keeps it.

    Attributes:
        rows: tensors [B, L, ...], one row for each event.
        whole: what belongs to the whole batch and not to a row.
    """

    rows: dict[str, Tensor]
    whole: Any = None

    def __getitem__(self, name: str) -> Tensor:
        """One of the rows' tensors."""
        return self.rows[name]

    def take(self, index: Int[Tensor, "batch chosen"]) -> Memory:
        """Other rows in place of these, by their numbers."""
        batch = torch.arange(len(index), device=index.device)[:, None]
        return Memory({name: x[batch, index] for name, x in self.rows.items()}, self.whole)

    def cut(self, which: slice) -> Memory:
        """Some of the rows."""
        return Memory({name: x[:, which] for name, x in self.rows.items()}, self.whole)

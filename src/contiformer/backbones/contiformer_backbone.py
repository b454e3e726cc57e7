"""ContiFormer behind the interface of all backbones."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from contiformer.backbones.base import Backbone, Capabilities
from contiformer.backbones.contiformer import ContiFormer
from contiformer.data.batch import Batch


class ContiFormerBackbone(Backbone):
    """:class:`~contiformer.ContiFormer` on batches; the options are its own.

    Example:
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> ContiFormerBackbone(input_size=1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """

    def __init__(self, input_size: int, d_model: int = 64, **options: Any) -> None:
        super().__init__()
        self.d_model = d_model
        self.capabilities = Capabilities(causal=bool(options.get("causal", False)))
        self.model = ContiFormer(input_size, d_model, **options)

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times."""
        return self.model(batch.values, batch.times, batch.observed, query_times)

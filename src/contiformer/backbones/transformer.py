"""The transformer encoder on real times."""

from __future__ import annotations

from torch import nn

from contiformer.backbones.base import Backbone, QueryTimes, States
from contiformer.backbones.encoder_layer import EncoderLayer, TokenEmbedding, encode
from contiformer.data.batch import Batch
from contiformer.nn.clock import TimeEncoding
from contiformer.nn.dropout import Dropout


class Transformer(Backbone):
    """Transformer encoder (Vaswani et al., Attention Is All You Need, 2017) with an encoding of real times.

    An observation enters as ``x_i = W [values_i, observed_i] + b + e(t_i)``, a query as ``m + e(t)`` with a learned
    vector ``m`` and ``e(t) = [sin(ω_k t), cos(ω_k t)]``. Each layer is ``y = LN(x + softmax(Q Kᵀ / √d_k) V)``,
    ``z = LN(y + FFN(y))``.

    With ``causal=True`` an observation attends to itself and the rows before it: the encoder of the Transformer Hawkes
    Process (Zuo et al. 2020). A query attends to all observations that are not later than it.

    Deviations:
        - Frequencies ``ω_k`` run from 1 to 100 per unit of time, because times are of order one here; in the originals
          wavelengths run from 2π to 20000π for positions.
        - The encoding is added once, as in the papers; the code of THP adds it before every layer, and has an optional
          LSTM after the last one that is left out.
    """

    citation = "Vaswani et al., Attention Is All You Need, NeurIPS 2017"
    causal_option = True

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 2,
        dropout: float = 0.1,
        n_heads: int = 4,
        d_ff: int | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        self.capabilities = self.capabilities_for(causal=causal)
        self.embedding = TokenEmbedding(input_size, d_model, causal=causal)
        self.encoding = TimeEncoding(d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers))

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        tokens = self.embedding(batch, query_times)
        x = self.dropout(tokens.x + self.encoding(tokens.times).to(tokens.x.dtype))
        return encode(self.layers, tokens.with_states(x), asked=query_times is not None)

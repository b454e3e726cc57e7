"""A backbone of your own, usable by name in every estimator."""

import torch
from torch import Tensor, nn

from contiformer import Classifier, TrainingOptions
from contiformer.backbones import BACKBONES, Backbone, Capabilities
from contiformer.data import Batch


class LastValues(Backbone):
    """An embedding of the last observed value of each channel."""

    capabilities = Capabilities(causal=True)
    citation = "an example"

    def __init__(self, input_size: int, d_model: int = 32, *, n_layers: int = 1, dropout: float = 0.1) -> None:
        super().__init__(input_size, d_model, n_layers)
        self.embed = nn.Sequential(nn.Linear(input_size, d_model), nn.GELU(), nn.Dropout(dropout))

    def forward(self, batch: Batch, query_times: Tensor | None = None) -> Tensor:
        """States at the query times."""
        asked = batch.times if query_times is None else query_times
        place = torch.arange(batch.times.shape[1]).expand(batch.times.shape)
        known = (batch.times[:, None] <= asked[..., None])[..., None] & batch.observed[:, None]
        last = torch.where(known, place[:, None, :, None], -1).amax(2)
        values = batch.values.gather(1, last.clamp(min=0)) * (last >= 0)
        return self.embed(values.float())


BACKBONES["last_values"] = LastValues

X = [([0.0, 0.5, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, 3.0, -1.0, -2.0, -3.0)]
model = Classifier(backbone="last_values", training=TrainingOptions(max_epochs=5, validation=0.5, verbose=0))
print(model.fit(X, ["up"] * 3 + ["down"] * 3).predict(X))

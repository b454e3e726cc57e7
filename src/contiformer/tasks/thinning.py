"""Another view of each series at every step: some points left out, a little noise."""

from __future__ import annotations

from dataclasses import replace

import torch

from contiformer.data.batch import Batch


def thinned(batch: Batch, keep: float, noise: float = 0.0) -> Batch:
    """A random share ``keep`` of the points of each series, and normal noise on the (scaled) values.

    Points that are left out become padding in their place: nothing observed. At least one point of a series stays.
    """
    values, observed = batch.values, batch.observed
    if keep < 1:
        chance = torch.rand(observed.shape[:2], device=observed.device)
        present = observed.any(-1)
        # the point with the smallest number stays whatever happens
        smallest = torch.where(present, chance, 2.0).amin(1, keepdim=True)
        observed = observed & ((chance < keep) | (chance == smallest))[..., None]
    if noise > 0:
        values = values + noise * torch.randn_like(values)
    if observed is batch.observed and values is batch.values:
        return batch
    return replace(batch, values=torch.where(observed, values, 0.0), observed=observed)

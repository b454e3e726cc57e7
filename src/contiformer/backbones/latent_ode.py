"""Latent ODE: a distribution of the state at the first observation, and a trajectory from there."""

from __future__ import annotations

import math
from typing import Any, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from contiformer.backbones.base import Backbone, QueryTimes, States, check_positive
from contiformer.backbones.flow import Flow, FlowOptions, states_along, tanh_network
from contiformer.backbones.ode_rnn import FlowingGRU
from contiformer.backbones.recurrence import Rows, gru, state_after
from contiformer.data.batch import Batch
from contiformer.nn.dropout import Dropout

#: The standard deviation of z_0 is never smaller, and begins at about this.
_LEAST_STD, _FIRST_STD = 1e-4, 0.1


class LatentODE(Backbone):
    """Rubanova, Chen and Duvenaud, "Latent ODEs for Irregularly-Sampled Time Series" (NeurIPS 2019), RNN encoder.

    A GRU runs over the rows from the last to the first and gives ``q(z_0) = N(μ, σ²)``; ``dz/dt = f(z)`` is solved from
    ``z(t_1) = z_0`` both ways, and the state is ``W z(t) + b``. In training z_0 is drawn (``μ + σ ε``), else it is μ.
    The encoder is that of Chen et al. (2018); :class:`LatentODERNN` has the ODE-RNN of Rubanova et al.

    The evidence lower bound is ``E_q[log p(x | z)] - KL(q(z_0) ‖ N(0, 1))``. The first term is the task's loss, the
    second :meth:`extra_loss`. The authors have an observation noise of 0.01, so an error of e costs ``e² / (2 · 0.01²)
    + KL``, which is ``e² + 0.0002 KL`` up to a factor: the default ``kl_weight``. For a log-likelihood it is 1.

    Args:
        latents, encoder_size: size of z and width of the encoder (6 to 20, and 40 in the paper).
        units, depth: width and number of the hidden layers of f.
        flow: solver, step and max_steps each way, see :class:`~contiformer.backbones.flow.Flow`.

    Deviations: one draw of z_0, while the authors average over several (an importance-weighted bound) and let the
    weight of KL grow from 0 during training. σ is a softplus, theirs an absolute value.
    """

    citation = "Rubanova et al., Latent ODEs for Irregularly-Sampled Time Series, NeurIPS 2019"
    _divergence: Tensor | None = None

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        *,
        n_layers: int = 1,
        dropout: float = 0.1,
        latents: int = 20,
        encoder_size: int = 40,
        units: int = 100,
        depth: int = 2,
        kl_weight: float = 2e-4,
        **flow: Unpack[FlowOptions],
    ) -> None:
        super().__init__(input_size, d_model, n_layers)
        check_positive(latents=latents, encoder_size=encoder_size, units=units, depth=depth)
        if not kl_weight >= 0:
            raise ValueError(f"kl_weight must not be negative, got {kl_weight}: use 0.0002, or 1 for a log-likelihood")
        self.kl_weight = kl_weight
        self.flow = Flow(**flow)
        self.dropout = Dropout(dropout)
        self.encoder = self._make_encoder(2 * input_size, encoder_size, n_layers, units, depth)
        initial = nn.Linear(units, 2 * latents)
        self.to_initial = nn.Sequential(nn.Linear(encoder_size, units), nn.Tanh(), initial)
        # a small spread at first, as in the authors' code: else little but noise is to be learned from
        nn.init.constant_(initial.bias[latents:], math.log(math.expm1(_FIRST_STD)))
        self.field = tanh_network(latents, units, depth)
        self.out = nn.Linear(latents, d_model)

    def _make_encoder(self, inputs: int, size: int, n_layers: int, units: int, depth: int) -> nn.Module:
        return gru(inputs + 1, size, n_layers, self.dropout.p)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        rows = Rows.of(batch, self.out.weight.dtype)
        mean, std = self.initial(rows)
        z0 = mean
        self._divergence = None
        if self.training:
            z0 = mean + std * torch.randn_like(std)
            self._divergence = standard_divergence(mean, std)
        if query_times is None:
            query_times = torch.where(batch.observed.any(-1), batch.times, rows.times[:, :1])
        since = query_times.to(rows.times) - rows.times[:, :1]
        return self.dropout(self.out(states_along(self.flow, self.field, z0, since)))

    def extra_loss(self) -> Float[Tensor, " batch"] | None:
        """``kl_weight`` times the KL of each series in the last forward pass, if that was in training; given once."""
        divergence, self._divergence = self._divergence, None
        return None if divergence is None else self.kl_weight * divergence

    def initial(self, rows: Rows) -> tuple[Float[Tensor, "batch latents"], Float[Tensor, "batch latents"]]:
        """Mean and standard deviation of z_0."""
        mean, std = self.to_initial(self._encode(backwards(rows))).chunk(2, dim=-1)
        return mean, F.softplus(std) + _LEAST_STD

    def _encode(self, rows: Rows) -> Float[Tensor, "batch size"]:
        """The encoder's state after the last row, with the rows in the order in which it reads them."""
        states, _ = self.encoder(rows.inputs_and(rows.gaps.abs()))
        return _last(states, rows)

    def __getstate__(self) -> dict[str, Any]:
        """Copies of the model do without what belongs to a forward pass."""
        return {name: value for name, value in self.__dict__.items() if name != "_divergence"}


class LatentODERNN(LatentODE):
    """:class:`LatentODE` whose encoder is an ODE-RNN, the model that Rubanova et al. (NeurIPS 2019) propose.

    Between the rows the encoder's state follows an ODE of its own, back in time, as in :class:`ODERNN`.
    """

    def _make_encoder(self, inputs: int, size: int, n_layers: int, units: int, depth: int) -> nn.Module:
        return nn.ModuleList(
            FlowingGRU(inputs if layer == 0 else size, size, tanh_network(size, units, depth), self.flow)
            for layer in range(n_layers)
        )

    def _encode(self, rows: Rows) -> Float[Tensor, "batch size"]:
        x = rows.inputs
        for number, layer in enumerate(cast(nn.ModuleList, self.encoder)):
            x = layer(self.dropout(x) if number else x, rows.gaps.abs())
        return _last(x, rows)


def standard_divergence(mean: Float[Tensor, "batch d"], std: Float[Tensor, "batch d"]) -> Float[Tensor, " batch"]:
    """KL of a normal law from the standard one, summed over dimensions."""
    return ((mean.square() + std.square() - 1) / 2 - std.log()).sum(-1)


def backwards(rows: Rows) -> Rows:
    """The same rows from the last to the first, still at the front of each series."""
    count = rows.present.sum(1, keepdim=True)
    place = torch.arange(rows.times.shape[1], device=count.device)
    # behind the last row its time, which is now the first one, is repeated
    order = torch.where(place < count, count - 1 - place, place)
    times = rows.times.gather(1, torch.where(place < count, order, 0))
    wide = order.unsqueeze(-1).expand_as(rows.observed)
    return Rows(times, rows.values.gather(1, wide), rows.observed.gather(1, wide), rows.present, rows.passed)


def _last(states: Float[Tensor, "batch rows d"], rows: Rows) -> Float[Tensor, "batch d"]:
    return state_after(states, rows.present.sum(1, keepdim=True)).squeeze(1)

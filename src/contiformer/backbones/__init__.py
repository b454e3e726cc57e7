"""Models from observations to states at any time, under one interface and by name."""

from __future__ import annotations

from typing import Any

from contiformer.backbones.autoformer import Autoformer
from contiformer.backbones.base import Backbone, Capabilities, check_capabilities
from contiformer.backbones.cadn import CADN
from contiformer.backbones.contiformer import ContiFormer
from contiformer.backbones.contiformer_backbone import ContiFormerBackbone
from contiformer.backbones.cru import CRU
from contiformer.backbones.dlinear import DLinear
from contiformer.backbones.fedformer import FEDformer
from contiformer.backbones.gru_d import GRUD
from contiformer.backbones.gru_dt import GRUDt
from contiformer.backbones.informer import Informer
from contiformer.backbones.latent_ode import LatentODE, LatentODERNN
from contiformer.backbones.mtan import MTAN
from contiformer.backbones.neural_cde import NeuralCDE
from contiformer.backbones.neural_ode import NeuralODE
from contiformer.backbones.nstka import NSTKA
from contiformer.backbones.ode_rnn import ODERNN
from contiformer.backbones.reformer import Reformer
from contiformer.backbones.s5 import S5
from contiformer.backbones.timesnet import TimesNet
from contiformer.backbones.transformer import Transformer
from contiformer.backbones.tst import TST
from contiformer.data.errors import did_you_mean

#: Every backbone by its name.
BACKBONES: dict[str, type[Backbone]] = {
    "contiformer": ContiFormerBackbone,
    "autoformer": Autoformer,
    "cadn": CADN,
    "cru": CRU,
    "dlinear": DLinear,
    "fedformer": FEDformer,
    "gru_d": GRUD,
    "gru_dt": GRUDt,
    "informer": Informer,
    "latent_ode": LatentODE,
    "latent_ode_rnn": LatentODERNN,
    "mtan": MTAN,
    "neural_cde": NeuralCDE,
    "neural_ode": NeuralODE,
    "nstka": NSTKA,
    "ode_rnn": ODERNN,
    "reformer": Reformer,
    "s5": S5,
    "timesnet": TimesNet,
    "transformer": Transformer,
    "tst": TST,
}

__all__ = ["BACKBONES", "Backbone", "Capabilities", "ContiFormer", "check_capabilities", "make_backbone"]


def make_backbone(name: str, input_size: int, **options: Any) -> Backbone:
    """A backbone by name.

    Args:
        name: one of :data:`BACKBONES`.
        input_size: channels that it will see.
        options: its own; every backbone knows ``d_model``, ``n_layers`` and ``dropout``.

    Example:
        >>> make_backbone("contiformer", 3, d_model=32).d_model
        32
    """
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}; {did_you_mean(name, BACKBONES)}")
    try:
        return BACKBONES[name](input_size, **options)
    except TypeError as error:
        raise ValueError(f"an option does not fit the backbone {name!r}: {error}") from error

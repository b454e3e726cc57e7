"""Backbones: models from observations to states at any time, by name."""

from __future__ import annotations

from typing import Any

from contiformer.backbones.autoformer import Autoformer
from contiformer.backbones.base import Backbone, Capabilities, check_capabilities
from contiformer.backbones.cadn import CADN
from contiformer.backbones.contiformer import ContiFormer, ContiFormerBackbone
from contiformer.backbones.cru import CRU
from contiformer.backbones.dlinear import DLinear
from contiformer.backbones.encoder_layer import EncoderLayer
from contiformer.backbones.fedformer import FEDformer
from contiformer.backbones.gru_d import GRUD
from contiformer.backbones.gru_dt import GRUDt
from contiformer.backbones.informer import Informer
from contiformer.backbones.latent_ode import LatentODE, LatentODERNN
from contiformer.backbones.mtan import MTAN, MultiTimeAttention
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

__all__ = [
    "BACKBONES",
    "MTAN",
    "Backbone",
    "Capabilities",
    "ContiFormer",
    "EncoderLayer",
    "MultiTimeAttention",
    "backbone_class",
    "check_capabilities",
    "make_backbone",
]


def backbone_class(name: str) -> type[Backbone]:
    """The class of a backbone by name, with its declarations: capabilities, defaults of tasks and others."""
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}; {did_you_mean(name, BACKBONES)}")
    return BACKBONES[name]


def make_backbone(name: str, input_size: int, **options: Any) -> Backbone:
    """A backbone for ``input_size`` channels by name; all of them know ``d_model``, ``n_layers`` and ``dropout``.

    Example:
        >>> from contiformer.backbones import make_backbone
        >>> from contiformer.data import Series, collate
        >>> batch = collate([Series.of([0, 0.3, 1], [[1.0], [2.0], [4.0]])])
        >>> make_backbone("contiformer", 1, d_model=16)(batch).shape
        torch.Size([1, 3, 16])
    """
    kind = backbone_class(name)
    try:
        return kind(input_size, **options)
    except TypeError as error:
        raise ValueError(f"an option does not fit the backbone {name!r}: {error}") from error

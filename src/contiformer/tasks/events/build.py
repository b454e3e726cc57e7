"""Event models by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from contiformer.backbones import BACKBONES, Backbone, backbone_class, make_backbone
from contiformer.data.errors import did_you_mean
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.continuous import ContinuousModel
from contiformer.tasks.events.encoder import EventEncoder, LastStateModel
from contiformer.tasks.events.hawkes import HawkesModel
from contiformer.tasks.events.hazard import HazardIntensity
from contiformer.tasks.events.intensities import SoftplusIntensity, StateIntensity
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.nhp import NeuralHawkesModel
from contiformer.tasks.events.renewal import PoissonModel, RenewalModel
from contiformer.tasks.events.rmtpp import ExponentialIntensity, RMTPPEncoder
from contiformer.tasks.events.sahp import ConvergingIntensity, SAHPEncoder

#: Intensities that are read from the state at the last event.
STATE_INTENSITIES: dict[str, Callable[..., StateIntensity]] = {
    "hazard": HazardIntensity,
    "thp": partial(SoftplusIntensity, relative=True),
    "thp-elapsed": partial(SoftplusIntensity, relative=False),
    "sahp": ConvergingIntensity,
    "rmtpp": ExponentialIntensity,
}
#: Models with an intensity of their own, encoders with the intensity of their paper, and other names of backbones.
MODELS: dict[str, type[IntensityModel]] = {
    "hp": HawkesModel,
    "nhp": NeuralHawkesModel,
    "poisson": PoissonModel,
    "renewal": RenewalModel,
}
ENCODERS: dict[str, type[RMTPPEncoder | SAHPEncoder]] = {"rmtpp": RMTPPEncoder, "sahp": SAHPEncoder}
ALIASES = {"thp": "transformer"}
WHOLE = tuple(sorted((*MODELS, *ENCODERS, *ALIASES)))
#: Names that :func:`build_model` takes with their default options; others have to be told to be causal.
EVENT_MODELS = (*WHOLE, *(name for name, kind in BACKBONES.items() if kind.causal_option or kind.capabilities.causal))
CONTINUOUS = "continuous"
INTENSITIES = ("auto", *STATE_INTENSITIES, CONTINUOUS)


def default_intensity(backbone: str) -> str:
    """The intensity that "auto" stands for."""
    if backbone in MODELS:
        return "own"
    return (
        ENCODERS[backbone].intensity
        if backbone in ENCODERS
        else backbone_class(ALIASES.get(backbone, backbone)).intensity
    )


def check_names(backbone: str, intensity: str) -> None:
    """Reject unknown names and pairs that do not fit."""
    names = (*WHOLE, *BACKBONES)
    if backbone not in names:
        raise ValueError(f"there is no backbone {backbone!r} for events; {did_you_mean(backbone, names)}")
    if intensity not in INTENSITIES:
        raise ValueError(f"intensity must be one of {', '.join(INTENSITIES)}, got {intensity!r}")
    if intensity != "auto" and backbone in MODELS:
        raise ValueError(f"the backbone {backbone!r} has an intensity of its own: leave intensity='auto'")
    if intensity == CONTINUOUS and backbone in WHOLE:
        raise ValueError(f"the backbone {backbone!r} has states at events only: use another intensity")


def build_model(
    backbone: str, intensity: str, scaling: EventScaling, options: dict[str, Any], *, waits: bool | None = None
) -> IntensityModel:
    """The model of one of :data:`WHOLE`, or of a backbone that is or can be causal, with one of :data:`INTENSITIES`.

    ``options`` are those of the backbone, among them d_model, n_layers and dropout. ``waits`` tells whether the encoder
    sees the wait before each event; None: yes, but not in "thp", as in its paper.
    """
    check_names(backbone, intensity)
    name = default_intensity(backbone) if intensity == "auto" else intensity
    try:
        if backbone in MODELS:
            return MODELS[backbone].build(scaling, options)
        if backbone in ENCODERS:
            encoder = ENCODERS[backbone](scaling, **options)
            return LastStateModel(encoder, STATE_INTENSITIES[name](encoder.d_model, scaling))
    except TypeError as error:
        raise ValueError(f"an option does not fit the backbone {backbone!r}: {error}") from error
    inner = _causal(ALIASES.get(backbone, backbone), options)
    shown = EventEncoder(inner, scaling, waits=backbone not in ALIASES if waits is None else waits)
    if name == CONTINUOUS:
        return ContinuousModel(shown, scaling)
    head = STATE_INTENSITIES[name](inner.d_model, scaling)
    head.tie(shown.input.embedding)
    return LastStateModel(shown, head)


def _causal(name: str, options: dict[str, Any]) -> Backbone:
    """The backbone, told to be causal where it has to be told."""
    kind, channels = backbone_class(name), options["d_model"]
    if kind.capabilities_for(**options).causal:
        return make_backbone(name, channels, **options)
    if not kind.causal_option:
        raise ValueError(
            f"the backbone {name!r} is not causal, so it cannot predict the next event: use one that is or can be "
            "causal, such as 'contiformer'"
        )
    return make_backbone(name, channels, **{**options, "causal": True})

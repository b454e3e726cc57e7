"""Models of event sequences by name."""

from __future__ import annotations

from typing import Any

from contiformer.backbones import BACKBONES, Backbone, make_backbone
from contiformer.data.errors import did_you_mean
from contiformer.data.event_scaling import EventScaling
from contiformer.tasks.events.continuous import ContinuousModel
from contiformer.tasks.events.encoded import EncodedModel
from contiformer.tasks.events.encoder import EventEncoder
from contiformer.tasks.events.heads import HEADS, HazardHead
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.models.hawkes import HawkesModel
from contiformer.tasks.events.models.nhp import NeuralHawkesModel
from contiformer.tasks.events.models.rmtpp import RMTPPEncoder
from contiformer.tasks.events.models.sahp import SAHPEncoder

#: Models that are more than a backbone: with an intensity of their own, or with an encoder that belongs to one.
WHOLE = ("hp", "nhp", "rmtpp", "sahp", "thp")
CONTINUOUS = "continuous"
#: With more types than this the decays of a Hawkes process are one: there is too little to learn one for each pair.
MANY = 12
INTENSITIES = ("auto", *HEADS, CONTINUOUS)


def default_intensity(backbone: str) -> str:
    """What "auto" stands for."""
    own = {"contiformer": "hazard", "rmtpp": "rmtpp", "sahp": "sahp", "hp": "own", "nhp": "own"}
    return own.get(backbone, "thp")


def check_names(backbone: str, intensity: str) -> None:
    """Refuse what there is not.

    Raises:
        ValueError: naming the argument.
    """
    names = (*WHOLE, *BACKBONES)
    if backbone not in names:
        raise ValueError(f"there is no backbone {backbone!r} for events; {did_you_mean(backbone, names)}")
    if intensity not in INTENSITIES:
        raise ValueError(f"intensity must be one of {', '.join(INTENSITIES)}, got {intensity!r}")
    if intensity != "auto" and default_intensity(backbone) == "own":
        raise ValueError(f"the backbone {backbone!r} has an intensity of its own: leave intensity='auto'")
    if intensity == CONTINUOUS and backbone in WHOLE:
        raise ValueError(f"the backbone {backbone!r} has states at events only: use another intensity")


def build_model(
    backbone: str, intensity: str, scaling: EventScaling, options: dict[str, Any], *, waits: bool | None = None
) -> IntensityModel:
    """The model.

    Args:
        backbone: one of :data:`WHOLE`, or a backbone that is or can be causal.
        intensity: one of :data:`INTENSITIES`.
        scaling: of the training sequences.
        options: of the backbone, among them d_model, n_layers and dropout.
        waits: whether the encoder sees the wait before each event; None: yes, but not in "thp", as in its paper.
    """
    check_names(backbone, intensity)
    try:
        if backbone == "hp":
            few = len(scaling.counts) <= MANY
            return HawkesModel(scaling, **{"decay": "pair" if few else "shared", **_without_sizes(options)})
        if backbone == "nhp":
            return NeuralHawkesModel(scaling, **options)
        name = default_intensity(backbone) if intensity == "auto" else intensity
        if backbone in ("rmtpp", "sahp"):
            encoder = (RMTPPEncoder if backbone == "rmtpp" else SAHPEncoder)(scaling, **options)
            return EncodedModel(encoder, HEADS[name](options["d_model"], scaling))
    except TypeError as error:
        raise ValueError(f"an option does not fit the backbone {backbone!r}: {error}") from error
    inner = _causal("transformer" if backbone == "thp" else backbone, options)
    shown = EventEncoder(inner, scaling, waits=backbone != "thp" if waits is None else waits)
    if name == CONTINUOUS:
        return ContinuousModel(shown, scaling)
    head = HEADS[name](inner.d_model, scaling)
    if isinstance(head, HazardHead):
        head.tie(shown.input.embedding)
    return EncodedModel(shown, head)


def _without_sizes(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("d_model", "n_layers", "dropout")}


def _causal(name: str, options: dict[str, Any]) -> Backbone:
    """The backbone, told to be causal where it has to be told."""
    channels = options["d_model"]
    plain = make_backbone(name, channels, **options)
    if plain.capabilities.causal:
        return plain
    try:
        return make_backbone(name, channels, **{**options, "causal": True})
    except ValueError:
        raise ValueError(
            f"the backbone {name!r} sees the future, so it cannot tell what happens next: use one that is or can be "
            "causal, such as 'contiformer'"
        ) from None

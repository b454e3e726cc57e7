"""The interface of all backbones: a batch of series and query times in, states out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from contiformer.data.series_set import SeriesSet

#: Gaps that differ by less than this share of the usual gap are the ticks of one clock.
_SAME_GAP = 1e-3
#: When states are asked for; None: at the times of the batch.
QueryTimes = Float[Tensor, "batch query"] | None
#: A vector for each series and query, and weights of the points of the series.
States = Float[Tensor, "batch query d"]
AttentionWeights = Float[Tensor, "batch heads query points"]


@dataclass(frozen=True)
class Capabilities:
    """Kinds of data that a backbone takes; anything beyond them is refused before training.

    Attributes:
        causal: the state at time t depends on nothing observed after t.
        irregular: times may be anywhere; otherwise all gaps have to be equal.
        missing: channels may be missing at some points.

    Example:
        >>> from contiformer.backbones import BACKBONES
        >>> BACKBONES["gru_d"].capabilities.causal
        True
    """

    causal: bool = False
    irregular: bool = True
    missing: bool = True


@runtime_checkable
class Stream(Protocol):
    """A causal model that is told its observations one by one."""

    def append(self, values: Float[Tensor, " channels"], time: float) -> Float[Tensor, " d"]:
        """The state after a new observation of all channels."""

    def at(self, time: float) -> Float[Tensor, " d"]:
        """The state at a later time, at which nothing is observed."""


class Backbone(nn.Module, ABC):
    """Base class of all backbones.

    A subclass takes ``input_size`` (channels C) and ``d_model`` (width of the states) first, then ``n_layers``,
    ``dropout`` (of the states of every layer, unless it says otherwise) and options of its own, and computes states
    from a batch with values [B, L, C]. All that tasks and estimators have to know about it is declared on the class.

    Common to all: missing channels are shown as 0 beside the observation mask; queries, which most papers do
    not have, do not see each other; before the first row a recurrent state is zero.

    Example:
        >>> from contiformer.backbones import Backbone, Capabilities
        >>> class Last(Backbone):
        ...     capabilities = Capabilities(causal=True)
        ...     defaults = {"classification": {"d_model": 16}}
        ...     def forward(self, batch, query_times=None): ...
        >>> Last.capabilities_for(d_model=8).causal
        True
    """

    d_model: int
    #: Of a class: with default options; of an instance: with its own.
    capabilities: Capabilities = Capabilities()
    #: The paper it is from.
    citation: str
    #: Options that differ from the constructor's defaults in a task ("classification", "regression", "interpolation",
    #: "forecasting" or "events"); options that a user gives come on top.
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: Whether there is an option ``causal``.
    causal_option: ClassVar[bool] = False
    #: Whether it maps a window of fixed length to the steps after it, and so needs ``history`` and ``horizon``.
    fixed_window: ClassVar[bool] = False
    #: Whether the states of the steps ahead begin with the model's own forecasts of the channels, in their order.
    forecasts: ClassVar[bool] = False
    #: How its paper normalises a window before the model and undoes it after it: Forecasting's option of this name.
    normalize: ClassVar[str] = "none"
    #: Whether its paper shows it the calendar: Forecasting's option of this name.
    calendar: ClassVar[bool] = True
    #: The intensity of event sequences with this backbone as their encoder, unless another one is chosen.
    intensity: ClassVar[str] = "thp"
    #: The longest series, in its unit of time, over which states can be followed.
    longest_span: ClassVar[float] = math.inf

    def __init__(self, input_size: int = 1, d_model: int = 1, n_layers: int = 1) -> None:
        super().__init__()
        check_positive(input_size=input_size, d_model=d_model, n_layers=n_layers)
        self.d_model = d_model
        self.register_forward_hook(_refuse_non_finite, with_kwargs=True)

    @classmethod
    def capabilities_for(cls, **options: Any) -> Capabilities:
        """The capabilities of an instance with these options, without building it."""
        if cls.causal_option and "causal" in options:
            return replace(cls.capabilities, causal=bool(options["causal"]))
        return cls.capabilities

    @abstractmethod
    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        """States at ``query_times``, by default at the times of the batch, where rows of padding may be anything."""

    def extra_loss(self) -> Float[Tensor, " batch"] | None:
        """A term to add to the loss of each series of the last batch, such as a KL divergence; by default none."""
        return None

    def attention_weights(self, batch: Batch, query_times: QueryTimes = None) -> AttentionWeights | None:
        """The last layer's attention weights over the points of the batch; None for a model without such weights."""
        return None

    def stream(self) -> Stream | None:
        """The model on a sequence that goes on, where an observation costs less than a new pass; otherwise None."""
        return None


def _refuse_non_finite(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any], states: Tensor) -> None:
    """Refuse states that are not finite, outside of training, naming series and step."""
    if model.training or torch.compiler.is_compiling():
        return
    asked = dict(zip(("batch", "query_times"), given, strict=False)) | named
    batch, queries = asked["batch"], asked.get("query_times")
    wrong = ~torch.isfinite(states).all(-1)
    if queries is None:
        wrong &= batch.mask
    if not bool(wrong.any()):
        return
    series, step = (int(n) for n in wrong.nonzero()[0])
    name = repr(batch.ids[series]) if batch.ids and batch.ids[series] is not None else str(series)
    when = float((batch.times if queries is None else queries)[series, step])
    seen = slice(0, int(batch.lengths[series]))
    gap = float(batch.times[series, seen].diff().amax()) if int(batch.lengths[series]) > 1 else 0.0
    raise FloatingPointError(
        f"{type(model).__name__} has no finite state for series {name} at step {step} (scaled time {when:.4g}; longest "
        f"gap {gap:.4g}, largest value {float(batch.values[series].abs().amax()):.4g}): are times and values in the "
        "units of the training? If they are, use another backbone, such as 'contiformer'"
    )


def check_capabilities(name: str, capabilities: Capabilities, data: SeriesSet) -> None:
    """Reject data that the backbone cannot take, naming the first series."""
    if capabilities.irregular and capabilities.missing:
        return
    usual = None
    for number, series in enumerate(data):
        which = f"series {number if series.id is None else repr(series.id)}"
        if not capabilities.missing and not series.observed.all():
            problem = f"{which} has missing values, and the backbone {name!r} needs every channel at every time"
            remedy = "fill them in, or use a backbone that takes missing channels, such as 'contiformer'"
            raise DataError(problem, remedy=remedy)
        gaps = np.diff(series.times)
        if capabilities.irregular or not len(gaps):
            continue
        usual = float(np.median(gaps)) if usual is None else usual
        if usual <= 0 or np.abs(gaps - usual).max() > _SAME_GAP * usual:
            problem = f"{which} has irregular times, and the backbone {name!r} needs a regular grid"
            remedy = "resample the data, or use a backbone that takes irregular times, such as 'contiformer'"
            raise DataError(problem, remedy=remedy)


def check_positive(use: str = "1 or more", **options: float) -> None:
    """Reject options that are not positive, saying what to use."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}: use {use}")


def check_heads(d_model: int, n_heads: int) -> None:
    """Reject heads that do not divide the width."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model={d_model}, got {n_heads}: choose another of the two")

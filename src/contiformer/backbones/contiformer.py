"""ContiFormer: the encoder, the backbone on batches, and the stream of a causal model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from contiformer.backbones.base import AttentionWeights, Backbone, QueryTimes, States
from contiformer.data.batch import Batch
from contiformer.nn.clock import Clock, TimeEncoding
from contiformer.nn.layer import ContiFormerLayer, NormPlace
from contiformer.nn.observations import snap_ties
from contiformer.nn.stream import LayerStream, can_stream
from contiformer.paths.tables import traced

Times = Float[Tensor, "batch points"]
#: Default width of a head: at a d_model of 64, 8 heads were better than 4 in all of four cross-validations within
#: training parts (python -m benchmarks choices heads).
HEAD_WIDTH = 8


class ContiFormer(nn.Module):
    """Continuous-time transformer: irregular observations in, a state ``z(t)`` at any time out.

    Values and observation masks are projected to ``d_model``, a temporal encoding is added, and
    ``n_layers`` layers of continuous-time attention follow. Every layer but the last is sampled at the observation
    times (or at ``reference_times``), the last one at ``query_times``.

    Args:
        input_size: channels C of the observations.
        d_model, n_heads, n_layers, d_ff, dropout: the usual sizes; ``n_heads=None`` makes heads 8 numbers wide (or the
            next larger number that divides ``d_model``), ``d_ff=None`` is ``4 * d_model``.
        time_origin, time_unit: 0 and 1 of the model's clock. The vector fields see this clock, so the unit decides how
            far keys and values move between observations; ``model.clock.fit(times)`` sets both from data.
        encoding_scale: of the temporal encoding beside the projected values.
        norm: where a layer normalises, see :class:`~contiformer.nn.ContiFormerLayer`.
        attention: options of :class:`~contiformer.nn.ContinuousAttention`, such as ``rule`` and ``causal``.

    Shapes:
        values [B, N, C], times [B, N] (not decreasing), observed [B, N, C] with True = observed (None: where values
        are not NaN), query_times [B, Q] in any order (None: ``times``) -> [B, Q, d_model].

    The model sees the mask of observed channels. A row with no observed channel is padding: its time does not matter,
    and where the queries are the times its state is zero. A sequence with no observation at all is legal.

    Example:
        >>> import torch
        >>> from contiformer import ContiFormer
        >>> model = ContiFormer(input_size=2, d_model=32)
        >>> times = torch.rand(4, 20).sort().values
        >>> model(torch.randn(4, 20, 2), times, query_times=torch.linspace(-0.5, 1.5, 100).expand(4, -1)).shape
        torch.Size([4, 100, 32])
    """

    def __init__(
        self,
        input_size: int,
        d_model: int = 64,
        n_heads: int | None = None,
        n_layers: int = 1,
        d_ff: int | None = None,
        dropout: float = 0.1,
        *,
        time_origin: float = 0.0,
        time_unit: float = 1.0,
        encoding_scale: float = 1.0,
        norm: NormPlace = "end",
        **attention: Any,
    ) -> None:
        super().__init__()
        if input_size < 1 or n_layers < 1:
            raise ValueError(f"input_size and n_layers must be positive, got {input_size} and {n_layers}")
        heads = _heads_for(d_model) if n_heads is None else n_heads
        self.input_size = input_size
        self.clock = Clock(time_origin, time_unit)
        self.encoding = TimeEncoding(d_model, scale=encoding_scale)
        self.input_proj = nn.Linear(2 * input_size, d_model)
        self.layers = nn.ModuleList(
            ContiFormerLayer(d_model, heads, d_ff, dropout, norm=norm, **attention) for _ in range(n_layers)
        )

    def forward(
        self,
        values: Float[Tensor, "batch obs channels"],
        times: Float[Tensor, "batch obs"],
        observed: Bool[Tensor, "batch obs channels"] | None = None,
        query_times: Float[Tensor, "batch query"] | None = None,
        reference_times: Float[Tensor, "batch ref"] | Sequence[Tensor] | None = None,
    ) -> Float[Tensor, "batch query d"]:
        """States at the query times; see the class.

        Layers before the last are sampled at ``reference_times``: one tensor [B, R], or one for each (None: ``times``).
        """
        observed = self._check(values, times, observed)
        clock = self.clock(times)
        queries = None if query_times is None else self.clock(query_times)
        shown = torch.where(observed, values, 0.0)
        x = self.input_proj(torch.cat([shown, observed.to(shown.dtype)], dim=-1))
        mask: Tensor | None = observed.any(-1)
        clock = torch.where(mask, clock, 0.0) if mask is not None else clock
        x = x + self.encoding(clock).to(x.dtype)
        references = self._references(reference_times, times.shape[0])
        for layer, reference in zip(self.layers, [*references, queries], strict=True):
            x = layer(x, clock, reference, mask, self.encoding)
            if reference is not None:
                clock, mask = reference, None
        if query_times is None and reference_times is not None:
            raise ValueError("query_times must be given with reference_times: the states are no longer at the times")
        return x

    def _references(self, reference_times: Tensor | Sequence[Tensor] | None, batch: int) -> list[Tensor | None]:
        inner = len(self.layers) - 1
        if reference_times is None:
            return [None] * inner
        given = [reference_times] * inner if isinstance(reference_times, Tensor) else list(reference_times)
        if len(given) != inner:
            raise ValueError(
                f"reference_times must be one tensor or {inner} (one per layer but the last), got {len(given)}"
            )
        for number, times in enumerate(given):
            _check_reference(times, batch, number)
        return [self.clock(t) for t in given]

    def _check(self, values: Tensor, times: Tensor, observed: Tensor | None) -> Bool[Tensor, "batch obs channels"]:
        if values.dim() != 3 or values.shape[-1] != self.input_size:
            raise ValueError(f"values must be [batch, observations, {self.input_size}], got {tuple(values.shape)}")
        if times.shape != values.shape[:2]:
            raise ValueError(f"times must be {tuple(values.shape[:2])} like values, got {tuple(times.shape)}")
        if observed is None:
            observed = values.isnan().logical_not()
        elif observed.shape != values.shape or observed.dtype != torch.bool:
            raise ValueError(
                f"observed must be boolean of shape {tuple(values.shape)} like values, "
                f"got {observed.dtype} of shape {tuple(observed.shape)}"
            )
        _refuse_infinite(values, observed)
        return observed


class ContiFormerBackbone(Backbone):
    """:class:`~contiformer.ContiFormer` on batches; the options are its own."""

    citation = "Chen et al., ContiFormer: Continuous-Time Transformer for Irregular Time Series Modeling, NeurIPS 2023"
    # With states that keep their size and an encoding of time that does not drown the values, more series were
    # classified rightly in all of eight cross-validations within training parts (python -m benchmarks choices layers).
    defaults: ClassVar = {"classification": {"norm": "entry", "encoding_scale": 0.3}}
    causal_option = True
    intensity = "hazard"
    # trajectories are followed in so many pieces at most
    longest_span = 4000.0

    def __init__(self, input_size: int, d_model: int = 64, **options: Any) -> None:
        super().__init__(input_size, d_model)
        self.capabilities = self.capabilities_for(**options)
        self.model = ContiFormer(input_size, d_model, **options)

    def forward(self, batch: Batch, query_times: QueryTimes = None) -> States:
        """States at the query times; in a causal model rows at one time come one after the other."""
        times = batch.times
        if self.capabilities.causal and times.shape[1]:
            seen = batch.observed.any(-1)
            # times that the clock does not tell apart are equal, too; rows without a value may have any time
            held = times.masked_fill(~seen, -torch.inf).cummax(1).values
            held = torch.maximum(held, times.masked_fill(~seen, torch.inf).amin(1, keepdim=True))
            times = _in_order(torch.where(seen, snap_ties(held, times.dtype), times), seen)
        return self.model(batch.values, times, batch.observed, query_times)

    def attention_weights(self, batch: Batch, query_times: QueryTimes = None) -> AttentionWeights:
        """The last layer's, from a second pass through its attention with the inputs of the first."""
        attention = cast(ContiFormerLayer, self.model.layers[-1]).attention
        inputs: list[tuple[Any, ...]] = []
        hook = attention.register_forward_pre_hook(lambda module, args: inputs.append(args))
        try:
            self(batch, query_times)
        finally:
            hook.remove()
        return attention(*inputs[-1], return_weights=True)[1]

    def stream(self) -> ContiFormerStream | None:
        """For a causal model whose layers can be told their observations one by one."""
        suits = all(isinstance(layer, ContiFormerLayer) and can_stream(layer) for layer in self.model.layers)
        return ContiFormerStream(self.model) if suits else None


class ContiFormerStream:
    """The states of a causal model, one observation after the other, equal to those of one pass over all of them."""

    def __init__(self, model: ContiFormer) -> None:
        self.model = model
        self.layers = [LayerStream(layer) for layer in model.layers if isinstance(layer, ContiFormerLayer)]
        self._input: Tensor | None = None
        self._clock = 0.0

    def _now(self, time: float) -> tuple[float, Float[Tensor, " d"]]:
        clock = self.model.clock(torch.tensor(time, dtype=torch.float64))
        return float(clock), self.model.encoding(clock).to(self.model.input_proj.weight)

    @torch.no_grad()
    def append(self, values: Float[Tensor, " channels"], time: float) -> Float[Tensor, " d"]:
        """The state after a new observation of all channels."""
        clock, now = self._now(time)
        x = self.model.input_proj(torch.cat([values, torch.ones_like(values)])) + now
        for layer in self.layers:
            self._input, self._clock = x - now, clock
            x = layer.append(x, clock)
        return self._finite(x, time)

    @torch.no_grad()
    def at(self, time: float) -> Float[Tensor, " d"]:
        """The state at a later time, at which nothing is observed."""
        clock, now = self._now(time)
        held = torch.zeros_like(now) if self._input is None else self._input
        return self._finite(self.layers[-1].at(held + now, clock), time)

    def _finite(self, state: Float[Tensor, " d"], time: float) -> Float[Tensor, " d"]:
        if not bool(torch.isfinite(state).all()):
            step = len(self.layers[-1].begun) - 1
            raise FloatingPointError(
                f"ContiFormer has no finite state at step {step} of the stream (scaled time {time:.4g}): are times and "
                "values in the units of the training?"
            )
        return state


def _heads_for(d_model: int) -> int:
    """As many heads as divide the width into parts of 8 or more."""
    return max((n for n in range(1, d_model // HEAD_WIDTH + 1) if d_model % n == 0), default=1)


def _check_reference(times: Tensor, batch: int, layer: int) -> None:
    """The next layer attends to the states at these times, so they must be what observation times must be."""
    name = f"reference_times of layer {layer}"
    if times.dim() != 2 or times.shape[0] != batch:
        raise ValueError(f"{name} must be [{batch}, references], got {tuple(times.shape)}")
    if traced(times):
        return
    if not bool(torch.isfinite(times).all()):
        raise ValueError(f"{name} must be finite: remove NaN and infinity")
    if bool((times[:, 1:] < times[:, :-1]).any()):
        raise ValueError(f"{name} must not decrease: sort them along the last dimension")


def _refuse_infinite(values: Tensor, observed: Tensor) -> None:
    if traced(values):
        return
    bad = observed & ~torch.isfinite(values)
    if bool(bad.any()):
        row, position, channel = torch.nonzero(bad)[0].tolist()
        raise ValueError(
            f"values must be finite where observed, got {float(values[row, position, channel])} in sequence {row} at "
            f"position {position}, channel {channel}: mark it as not observed, or use NaN for missing values"
        )


def _in_order(times: Times, seen: Bool[Tensor, "batch points"]) -> Times:
    """Equal times moved apart, to before the time they share, so that a row does not see those after it.

    By four times as much as the clock must tell apart (:func:`~contiformer.nn.observations.snap_ties`), and by no more
    than half of the gap before them.
    """
    shown = times.masked_fill(~seen, torch.nan)
    same = shown[:, 1:] == shown[:, :-1]
    if not traced(times) and not bool(same.any()):
        return times
    count = times.shape[1]
    place = torch.arange(count, device=times.device).expand_as(times)
    first = torch.ones_like(times, dtype=torch.bool)
    first[:, 1:] = ~same
    begin = torch.where(first, place, 0).cummax(1).values
    last = torch.ones_like(first)
    last[:, :-1] = ~same
    end = torch.where(last, place, count).flip(1).cummin(1).values.flip(1)
    before = times.gather(1, (begin - 1).clamp(min=0))
    gap = torch.where(begin > 0, times - before, torch.inf)
    spacing = torch.finfo(times.dtype).eps * torch.maximum(times.abs(), times[:, :1].abs())
    least = torch.maximum(4e-11 * (times - times[:, :1]), 16 * spacing).clamp(min=1e-10)
    step = torch.minimum(least, gap / (2 * (end - begin + 1)))
    return times - step * (end - place)

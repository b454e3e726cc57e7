"""Random convolutions of the continuous path, and a ridge on them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv1d

from contiformer.data.batch import Batch, collate
from contiformer.data.scaling import Origin, Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.data.statistics import STATISTICS
from contiformer.nn.local_features import fill_channels, time_since_observed
from contiformer.paths.interpolation import count_until
from contiformer.tasks.baselines.base import Baseline
from contiformer.tasks.baselines.boosting import statistics_of, summaries_of
from contiformer.tasks.baselines.ridge import fit_ridge

#: Taps of a kernel: three of them weigh 2, the others -1.
TAPS = 9
KERNELS = tuple(combinations(range(TAPS), 3))
#: Times at which a path is read, at least and at most, and dilations at most.
FEWEST, MOST, DILATIONS = 64, 384, 12
#: Share of the window of all series that the median series covers, from which on paths are read over the whole window.
SHARED = 0.7
#: Features, and how many of them with more series than ``MANY``, where a ridge takes the cube of their number.
FEATURES, FEWER, MANY = 10_000, 3_000, 3_000
#: Weights of the block of summary statistics that are tried.
BLOCK_WEIGHTS = (0.0, 0.3, 1.0)
#: Training series whose convolutions the thresholds are quantiles of.
EXAMPLES = 64
#: A convolution is above a threshold if it is by so much: more than float32 rounds.
MARGIN = 1e-4
#: Ridge scores are about as far apart as 2: logits of a certain answer are farther.
SHARPNESS = 5.0


class Rocket(Baseline):
    """MiniRocket's kernels on the continuous path of a series, and a ridge chosen by leave-one-out errors.

    A path is the straight lines between a channel's own observations, read at equal steps in time, so that kernels are
    dilated in time; there is no grid in the data. The steps cover the window that all series share, or, where there is
    none (:func:`shared_window`), the span of each series. A feature is the share of the time at which the
    convolution with a random kernel over random channels is above a threshold. Kernels see the path, its first
    differences and, where channels are missing at some points, the time since each was observed. The ridge also has the
    summary statistics, with one of a few weights, the one with the least leave-one-out error.

    Args:
        points: equal steps of a path.
        window: length of the shared window in scaled time, from time 0 on; None: each series' own span.
        thresholds: of each kernel, at every dilation and for each of the two representations.
        gaps: channels are missing at some points.
        (all others): see :class:`Baseline`.
    """

    citation: ClassVar[str] = "Dempster et al., MiniRocket, KDD 2021; Tan et al., MultiRocket, 2022 (differences)"
    channel_masks: Tensor
    biases: Tensor
    spread: Tensor
    centre: Tensor
    scale: Tensor
    slopes: Tensor
    intercept: Tensor
    #: Columns of :meth:`statistics` beside those of channels and static features.
    further: ClassVar[int] = 2

    def __init__(
        self,
        *,
        points: int = 128,
        thresholds: int = 8,
        gaps: bool = False,
        window: float | None = None,
        **shape: Any,
    ) -> None:
        super().__init__(**shape)
        self.points, self.thresholds, self.gaps, self.window = points, thresholds, gaps, window
        self.dilations = dilations(points)
        inputs = self.channels * (2 if gaps else 1)
        count = (2, len(self.dilations), len(KERNELS))
        width = 2 * len(self.dilations) * len(KERNELS) * thresholds
        width += len(STATISTICS) * self.channels + self.further + self.static
        self.register_buffer("channel_masks", torch.zeros(*count, inputs))
        self.register_buffer("biases", torch.zeros(*count, thresholds))
        self.register_buffer("spread", torch.ones(inputs))
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("slopes", torch.zeros(width, self.outputs, dtype=torch.float64))
        self.register_buffer("intercept", torch.zeros(self.outputs, dtype=torch.float64))

    @classmethod
    def origin(cls, data: SeriesSet, usual: Origin) -> Origin:
        """One clock for all series where they share a window: when something happens in it may tell classes apart."""
        return usual if shared_window(data) is None else "global"

    @classmethod
    def describe(cls, data: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        """Steps, window and thresholds for these training series."""
        window = shared_window(data) if scaling.origin == "global" else None
        points = int(np.clip(2 * np.median(data.lengths), FEWEST, MOST)) if len(data) else FEWEST
        wanted = FEATURES if len(data) <= MANY else FEWER
        each = wanted / (2 * len(KERNELS) * len(dilations(points)))
        gaps = any(bool(np.isnan(one.values).any()) for one in data)
        length = None if window is None else window / scaling.unit
        return {"points": points, "thresholds": max(1, round(each)), "gaps": gaps, "window": length}

    # Features

    def _paths(self, batch: Batch) -> Float[Tensor, "batch inputs steps"]:
        """Each channel at equal steps of the window; before its first and after its last observation it is constant."""
        times, rows = batch.times, batch.values.shape[1]
        if not rows:
            return batch.values.new_zeros(len(batch), self.channel_masks.shape[-1], self.points)
        shown = fill_channels(batch.values, times, batch.observed)
        if self.gaps:
            since = time_since_observed(times, batch.observed).to(shown)
            shown = torch.cat([shown, since.clamp(max=10.0)], dim=-1)
        share = torch.linspace(0, 1, self.points, dtype=times.dtype, device=times.device)
        first, last = times[:, :1], times[:, -1:]
        if self.window is not None:
            first, last = torch.zeros_like(first), torch.full_like(last, self.window)
        steps = first + (last - first) * share
        after = count_until(times[:, :-1], steps)
        before = (after - 1).clamp(min=0)
        start, end = times.gather(1, before), times.gather(1, after)
        share = ((steps - start) / (end - start).clamp(min=torch.finfo(times.dtype).tiny)).clamp(0, 1).to(shown)
        wide = (-1, -1, shown.shape[-1])
        low, high = (shown.gather(1, index[..., None].expand(wide)) for index in (before, after))
        return (low + share[..., None] * (high - low)).transpose(1, 2)

    def _convolutions(self, batch: Batch) -> Iterator[tuple[int, int, Tensor, int]]:
        """Representation, number of the dilation, outputs [batch, kernels, steps], and steps to skip at the ends."""
        paths = self._paths(batch)
        taps = torch.full((len(KERNELS), TAPS), -1.0, device=paths.device)
        taps[torch.arange(len(KERNELS))[:, None], torch.tensor(KERNELS)] = 2.0
        for kind, shown in enumerate((paths, paths.diff(dim=-1) / self.spread[:, None])):
            for k, dilation in enumerate(self.dilations):
                weight = self.channel_masks[kind, k][:, :, None] * taps[:, None, :]
                reach = dilation * (TAPS // 2)
                yield kind, k, conv1d(shown, weight, padding=reach, dilation=dilation), reach

    @torch.no_grad()
    def features(self, batch: Batch) -> Float[Tensor, "batch features"]:
        """Shares of the time above each threshold, and the summary statistics."""
        parts = []
        for kind, k, out, reach in self._convolutions(batch):
            inner = out[:, 1::2, reach : out.shape[-1] - reach]
            # every other kernel counts only where it lies within the series
            for own, biases in ((out[:, ::2], self.biases[kind, k, ::2]), (inner, self.biases[kind, k, 1::2])):
                parts += [(own > bias[:, None]).float().mean(-1) for bias in biases.unbind(-1)]
        parts.append(self.statistics(batch))
        return torch.cat(parts, dim=1)

    def statistics(self, batch: Batch) -> Float[Tensor, "batch statistics"]:
        """Summary statistics and static features of the series of a batch."""
        return statistics_of(batch)

    # Fitting

    @torch.no_grad()
    def fit(self, training: SeriesSet, validation: SeriesSet, *, refit: bool, seed: int) -> dict[str, float]:
        self._draw(training, seed)
        x, y, w = self.table(training)
        held, truth, weight = self.table(validation)
        if refit:
            x, y, w = (np.concatenate(pair) for pair in ((x, held), (y, truth), (w, weight)))
        told = torch.from_numpy(x).to(self.device)
        targets = y[:, None] if self.classes is None else np.where(np.arange(self.classes) == y[:, None], 1.0, -1.0)
        errors = []
        # with many series a ridge takes long, and has little to gain from leaving statistics out
        for block in BLOCK_WEIGHTS if len(x) <= MANY else BLOCK_WEIGHTS[-1:]:
            self._standardize(x, w, block)
            fitted = fit_ridge(self._standard(told).cpu().numpy(), targets, w)
            errors.append((float(w @ ((fitted[2] - targets) ** 2).sum(1)), block, fitted))
        _, block, (slopes, intercept, left_out) = min(errors, key=lambda one: one[0])
        self._standardize(x, w, block)
        self.slopes.copy_(torch.from_numpy(slopes))
        self.intercept.copy_(torch.from_numpy(intercept))
        used = w > 0
        found = self.metrics_of(self._sharp(left_out[used]), y[used])
        if refit:
            return found
        scores = self._scores(torch.from_numpy(held).to(self.device)).cpu().numpy()
        return self.metrics(self.judged_by(scores, truth))

    def _draw(self, training: SeriesSet, seed: int) -> None:
        """Random channels of each kernel, and thresholds: quantiles of its outputs for a random training series."""
        random = np.random.default_rng(seed)
        chosen = random.permutation(len(training))[:EXAMPLES]
        batch = collate([training[int(n)] for n in chosen], training.classes).to(self.device)
        inputs = self.channel_masks.shape[-1]
        sizes = 2 ** random.uniform(0, np.log2(min(inputs, TAPS) + 1), self.channel_masks.shape[:-1])
        order = random.random(self.channel_masks.shape).argsort(-1)
        self.channel_masks.copy_(torch.from_numpy((order < sizes.astype(int)[..., None]).astype(np.float32)))
        changes = self._paths(batch).diff(dim=-1)
        self.spread.copy_(changes.square().mean((0, 2)).sqrt().clamp(min=1e-6))
        # quantiles of low discrepancy
        golden = (1 + 5**0.5) / 2
        levels = np.arange(1, self.biases[0].numel() + 1) * golden % 1
        levels_of = torch.from_numpy(levels.astype(np.float32)).view(self.biases[0].shape)
        for kind, k, out, _ in self._convolutions(batch):
            example = torch.from_numpy(random.integers(len(batch), size=len(KERNELS)))
            own = out[example, torch.arange(len(KERNELS))].sort(-1).values
            place = (levels_of[k].to(own) * (own.shape[-1] - 1)).long()
            # where a path is constant its convolution is 0 but for rounding, which must not count
            self.biases[kind, k] = own.gather(1, place.to(own.device)) + MARGIN

    def _standardize(self, x: NDArray[Any], w: NDArray[np.float64], block: float) -> None:
        """Set what features are standardised by; with a ``block`` of 1 summary statistics have as much variance."""
        known, share = np.where(np.isnan(x), 0.0, x), np.where(np.isnan(x), 0.0, (w / w.sum())[:, None])
        total = np.maximum(share.sum(0), 1e-12)
        mean = (known * share).sum(0) / total
        std = np.sqrt(((known - mean) ** 2 * share).sum(0) / total)
        std[std < 1e-6] = np.inf
        shares = self.biases.numel()
        std[shares:] *= np.sqrt((len(mean) - shares) / shares) / block if block else np.inf
        self.centre.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(std))

    def _standard(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Standardised features in float64; an unknown one is at its mean, and outliers are clipped."""
        return ((x - self.centre) / self.scale).nan_to_num().clamp(-1e3, 1e3).double()

    def _sharp(self, scores: Any) -> Any:
        return scores if self.classes is None else SHARPNESS * scores

    def _scores(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        return self._sharp(self._standard(x) @ self.slopes + self.intercept)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Float[Tensor, "batch outputs"]:
        return self._scores(self.features(batch))


class RocketBeside(Rocket):
    """Random convolutions as a part of another model: all of it plain tensor operations; logits are calibrated."""

    further = 0

    def statistics(self, batch: Batch) -> Float[Tensor, "batch statistics"]:
        return summaries_of(batch)

    def forward(self, batch: Batch) -> Float[Tensor, "batch outputs"]:
        return super().forward(batch) / self.temperature


def shared_window(data: SeriesSet) -> float | None:
    """Length of the window from the first to the last time of all series, where they are recorded in the same one.

    Series share a window if the median one covers most of it. None: they do not, or their times are dates.
    """
    spans = [one.span for one in data if len(one)]
    if not spans or data.schema.dates:
        return None
    length = max(one.times[-1] for one in data if len(one)) - min(one.times[0] for one in data if len(one))
    return float(length) if 0 < SHARED * length <= np.median(spans) else None


def dilations(points: int) -> list[int]:
    """Exponentially spaced dilations with which a kernel still fits into so many steps."""
    # differences have a step less
    largest = np.log2(max(1.0, (points - 2) / (TAPS - 1)))
    return np.unique((2 ** np.linspace(0, largest, DILATIONS)).astype(int)).tolist()

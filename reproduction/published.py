"""Forecasters of regular grids trained as published, by the protocol of Autoformer and the Time Series Library.

All channels together, full windows, squared error over the whole horizon, Adam in batches of 32 without warm-up, weight
decay, clipping or averaging. The forecast is the model's own, or a linear map of its states; windows are normalised and
the calendar is embedded only where the model's paper does so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from contiformer.backbones import BACKBONES, make_backbone
from contiformer.data import Loader, Scaling, SeriesSet
from contiformer.tasks import Forecasting, InputOptions, Inputs
from contiformer.training import TrainingOptions, train

#: Options of the training that the published ones do without; their learning rate decays by a schedule alone.
PLAIN: dict[str, Any] = {"min_steps": 0, "warmup": 0.0, "weight_decay": 0.0, "gradient_clip": 0.0, "averaging": 0.0}
#: Added to the variance of a window, where a published model is normalised by it.
SMALLEST_VARIANCE = 1e-5
#: Windows in a batch that is only evaluated.
EVALUATION_BATCH = 128
#: Seconds.
DAY, YEAR = 86400.0, 365.2425 * 86400.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Model and training.

    Attributes:
        backbone: a forecaster of regular grids, that is one with a fixed window.
        d_model, n_layers, dropout, backbone_options: its sizes and options; n_layers None: as many as its paper has.
        max_epochs, batch_size, learning_rate, patience, keep: see :class:`~contiformer.training.TrainingOptions`.
        validation_limit: windows to validate on after each epoch, evenly spaced; None: all.
    """

    backbone: str
    d_model: int = 32
    n_layers: int | None = None
    dropout: float = 0.2
    backbone_options: dict[str, Any] = field(default_factory=dict)
    max_epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 1e-4
    patience: float = 0.3
    keep: str = "best"
    validation_limit: int | None = None

    def options(self, seed: int, verbose: int = 0) -> TrainingOptions:
        """Options of the training."""
        names = ("max_epochs", "batch_size", "learning_rate", "patience", "keep")
        return TrainingOptions(**{name: getattr(self, name) for name in names}, **PLAIN, seed=seed, verbose=verbose)


@dataclass(frozen=True)
class Trained:
    """A trained model.

    Attributes:
        task: with the weights that were kept.
        scaling: of times; values are taken as they come.
        history: metrics of each epoch.
        validation: metrics of the weights that were kept.
        configuration: everything that decided what was learned, for JSON.
    """

    task: Forecasting
    scaling: Scaling
    history: list[dict[str, float]]
    validation: dict[str, float]
    configuration: dict[str, Any]

    def evaluate(self, windows: SeriesSet) -> dict[str, float]:
        """Errors over all windows."""
        return self.task.evaluate(Loader(self.scaling.apply(windows), EVALUATION_BATCH, shuffle=False))


def train_published(
    recipe: Recipe, learning: SeriesSet, validation: SeriesSet, *, seed: int = 0, verbose: int = 0
) -> Trained:
    """Train on windows of a regular grid: of one size, in the order of time, values standardised already.

    Raises:
        ValueError: the backbone is no forecaster of regular grids.
        KeyboardInterrupt: the training was stopped.
    """
    kind = BACKBONES.get(recipe.backbone)
    if kind is None or not kind.fixed_window:
        regular = [name for name, known in BACKBONES.items() if known.fixed_window]
        raise ValueError(f"{recipe.backbone} is no forecaster of regular grids: choose among {', '.join(regular)}")
    first, last, channels = learning[0], learning[-1], len(learning.channels)
    assert first.target_times is not None
    history, horizon = len(first), len(first.target_times)
    step, start = float(np.median(np.diff(first.times))), float(first.times[0])
    zero, one = (0.0,) * channels, (1.0,) * channels
    # the model's clock measures a window
    unit = history * step
    scaling = Scaling(learning.channels, zero, one, "global", start, unit, target_mean=zero, target_std=one)
    seasons = _seasons(step, last.times[-1] - start) if kind.calendar and learning.schema.dates else []
    options = {"d_model": recipe.d_model, "dropout": recipe.dropout, "history": history, "horizon": horizon}
    options |= ({} if recipe.n_layers is None else {"n_layers": recipe.n_layers}) | recipe.backbone_options
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inputs = Inputs(InputOptions(channels + 2 * len(seasons)))
        task = Forecasting(
            make_backbone(recipe.backbone, inputs.size, **options),
            inputs,
            outputs=channels,
            reach=horizon * step * (1 + 1e-6) / unit,
            separate=False,
            normalize=kind.normalize,
            smallest_spread=SMALLEST_VARIANCE**0.5,
            past=0,
            seasons=seasons,
            start=start,
            unit=unit,
            calendar=kind.calendar,
            law="point",
            reads="forecasts" if kind.forecasts else "states",
            ask=None,
        )
    validated = scaling.apply(evenly(validation, recipe.validation_limit))
    outcome = train(task, scaling.apply(learning), validated, recipe.options(seed, verbose))
    if outcome.interrupted:
        raise KeyboardInterrupt("the training was stopped before its end")
    configuration = {**asdict(recipe), **PLAIN, "backbone_options": options, "seasons": seasons, "seed": seed}
    kept = task.evaluate(Loader(validated, EVALUATION_BATCH, shuffle=False))
    return Trained(task, scaling, outcome.history, kept, configuration)


def evenly(data: SeriesSet, most: int | None) -> SeriesSet:
    """So many of the series, evenly spaced; all where there are no more, or for None."""
    if most is None or len(data) <= most:
        return data
    return data.select(np.linspace(0, len(data) - 1, most).round().astype(int))


def _seasons(step: float, longest: float) -> list[float]:
    """Periods of day, week and year in seconds, as far as steps and length of the training part show them."""
    return [period for period in (DAY, 7 * DAY, YEAR) if 2 * step <= period <= longest / 2]
